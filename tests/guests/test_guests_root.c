/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Guests that begin as root: they drop what they may do, or move to another root or namespace. */

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "guests.h"

static const struct {
	const char *scenario, *left;
	bool is_pooled;
} scenarios[] = {
	{"drop-before", "tmp ", true},
	{"root-before", "root ", true},
	{"namespaces", "", true},
	{"user-namespace", "", true},
};

/* What the program itself has made goes before the next run. */
static void run_twice(const char *scenario)
{
	char tmp[128];
	const char *env[] = {tmp, "GPUPOOL_LOG=off", NULL};
	struct play play = {.program = "guest_root", .words = {scenario}, .env = env};
	static char out[PLAY_OUTPUT_MAX];
	int status;

	snprintf(tmp, sizeof(tmp), "TMPDIR=%s/tmp", play_dir);
	play_run(&play);
	strcpy(out, play_out);
	status = play_status;
	ck_assert_int_eq(system("rm -rf root tmp"), 0);
	play.preload = play_library;
	play_run(&play);
	ck_assert_str_eq(play_out, out);
	ck_assert_str_eq(play_err, "");
	ck_assert_int_eq(play_status, status);
	ck_assert_int_eq(status, 0);
}

START_TEST(who_may_do_less_still_has_a_pool)
{
	run_twice(scenarios[_i].scenario);
	ck_assert_str_eq(guests_left(), scenarios[_i].left);
	guests_check_pooled();
	/* A directory for sockets may have been made, and nothing is in it any more. */
	ck_assert_int_eq(system("test -z \"$(find . -type s)\""), 0);
}
END_TEST

/* Its own name is out of its reach at the end: the next process takes it away. */
static const char *const later[] = {"drop-after", "root-after"};

START_TEST(who_may_do_less_later_keeps_his_memory)
{
	run_twice(later[_i]);
	ck_assert_int_eq(system("rm -rf root tmp"), 0);
	guests_same(&(struct play){.program = "guest_process", .words = {"exec"}});
}
END_TEST

/* The loader takes no library into a program that has more rights than its user. */
START_TEST(a_setuid_program_runs_without_us)
{
	ck_assert_int_eq(system("cp /bin/grep . && chown 65534 grep && chmod 4755 grep && chmod 711 ."), 0);
	play_run(&(struct play){.program = "/bin/grep",
		.words = {"-c", "libgpupool", "/proc/self/maps"},
		.preload = play_library});
	ck_assert_str_ne(play_out, "0\n");
	play_run(&(struct play){
		.program = "../../../../../../../../../../../proc/self/cwd/grep",
		.words = {"-c", "libgpupool", "/proc/self/maps"},
		.preload = play_library});
	ck_assert_str_eq(play_out, "0\n");
	ck_assert_str_eq(play_err, "");
}
END_TEST

static void add(TCase *tc)
{
	tcase_add_loop_test(tc, who_may_do_less_still_has_a_pool, 0, (int)LENGTH(scenarios));
	tcase_add_loop_test(tc, who_may_do_less_later_keeps_his_memory, 0, (int)LENGTH(later));
	tcase_add_test(tc, a_setuid_program_runs_without_us);
}

/* Root may be root in name only, as in a container. */
static bool may_do_all(void)
{
	pid_t child = fork();
	int status;

	if (child == 0)
		_exit(unshare(CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWIPC) || unshare(CLONE_NEWUSER) ||
			chroot("/"));
	return waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

int main(int argc, char **argv)
{
	struct statvfs tmp;

	if (geteuid() != 0)
		return guests_skip("only root can do this");
	if (getenv(EMULATOR))
		return guests_skip("an emulator is not for namespaces");
	if (!may_do_all())
		return guests_skip("this root may not make namespaces, or change its root");
	if (statvfs("/tmp", &tmp) || tmp.f_flag & ST_NOSUID)
		return guests_skip("programs in /tmp cannot be setuid");
	return play_main(argc, argv, &(struct play_tests){"root", add}, 1);
}
