/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Guests that start as root and give up rights, or change their root directory or namespaces. */

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

/* Removes the files that the program itself has created, before the second run. */
static void check_same(const char *scenario)
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

START_TEST(a_program_that_gives_up_rights_before_CUDA_still_gets_a_pool)
{
	check_same(scenarios[_i].scenario);
	ck_assert_str_eq(guests_left(), scenarios[_i].left);
	guests_check_pooled();
	/* A socket directory may have been created, but there is no socket left in it. */
	ck_assert_int_eq(system("test -z \"$(find . -type s)\""), 0);
}
END_TEST

/* The process cannot reach its socket's name at its end, so the next process removes that. */
static const char *const later[] = {"drop-after", "root-after"};

START_TEST(a_program_that_gives_up_rights_after_CUDA_keeps_its_memory)
{
	check_same(later[_i]);
	ck_assert_int_eq(system("rm -rf root tmp"), 0);
	guests_same(&(struct play){.program = "guest_process", .words = {"exec"}});
}
END_TEST

/* The loader preloads no library into a program that has more rights than its user. */
START_TEST(a_setuid_program_runs_without_the_library)
{
	ck_assert_int_eq(system("cp /bin/grep . && chown 65534 grep && chmod 4755 grep && chmod 711 ."), 0);
	play_run(&(struct play){
		.program = "/bin/grep", .words = {"-c", "libgpupool", "/proc/self/maps"}, .preload = play_library});
	ck_assert_str_ne(play_out, "0\n");
	play_run(&(struct play){.program = "../../../../../../../../../../../proc/self/cwd/grep",
		.words = {"-c", "libgpupool", "/proc/self/maps"},
		.preload = play_library});
	ck_assert_str_eq(play_out, "0\n");
	ck_assert_str_eq(play_err, "");
}
END_TEST

static void add(TCase *tc)
{
	tcase_add_loop_test(
		tc, a_program_that_gives_up_rights_before_CUDA_still_gets_a_pool, 0, (int)LENGTH(scenarios));
	tcase_add_loop_test(tc, a_program_that_gives_up_rights_after_CUDA_keeps_its_memory, 0, (int)LENGTH(later));
	tcase_add_test(tc, a_setuid_program_runs_without_the_library);
}

/* Root may lack rights, for example in a container. */
static bool has_all_rights(void)
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
		return guests_skip("an emulator does not support namespaces");
	if (!has_all_rights())
		return guests_skip("this root may not make namespaces, or change its root");
	if (statvfs("/tmp", &tmp) || tmp.f_flag & ST_NOSUID)
		return guests_skip("programs in /tmp cannot be setuid");
	return play_main(argc, argv, &(struct play_tests){"root", add}, 1);
}
