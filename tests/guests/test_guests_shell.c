/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Shell scripts, and the commands that they call. */

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "guests.h"

static const char *const wrong_settings[] = {"GPUPOOL_LIMT=1GiB", "GPUPOOL_POOL=wrong", "GPUPOOL_LIMIT=lots", NULL};

static const char *const commands[] = {
	"echo out; echo err >&2; exit 3",
	"ls /; test -e /nowhere || sh -c 'kill -9 $$'; echo $?",
	"grep -c libcuda /proc/self/maps; echo; ls -l /proc/self/fd | wc -l",
	"cat /proc/self/status | grep -c Threads:.1$; umask; pwd; env | grep -v LD_PRELOAD",
	"env -i /bin/sh -c 'env; exec /bin/echo alone'",
};

START_TEST(a_shell_command_behaves_as_without_the_library)
{
	guests_same(&(struct play){.program = "/bin/sh", .words = {"-c", commands[_i]}, .env = wrong_settings});
}
END_TEST

START_TEST(a_process_without_CUDA_loads_no_driver)
{
	play_run(&(struct play){.program = "/bin/sh",
		.words = {"-c", "grep -c libgpupool.so /proc/self/maps >/dev/null && ! grep libcuda /proc/self/maps"},
		.preload = play_library});
	ck_assert_int_eq(play_status, 0);
	ck_assert_str_eq(guests_left(), "");
}
END_TEST

static const char *const scenarios[] = {
	"pipelines", "subshells", "documents", "jobs_and_signals", "traps", "process", "cuda"};

START_TEST(a_shell_script_behaves_as_without_the_library)
{
	char guest[PATH_MAX];
	const char *env[] = {guest, "GPUPOOL_LOG=off", NULL};

	snprintf(guest, sizeof(guest), "GUEST=%s/guest_process", play_app_dir);
	guests_same(&(struct play){.program = "/bin/bash", .words = {GUESTS "/guest.bash", scenarios[_i]}, .env = env});
	ck_assert_msg(play_status == (strcmp(scenarios[_i], "traps") == 0 ? 6 : 0), "%s: unexpected exit status %d",
		scenarios[_i], play_status);
}
END_TEST

/* The loader reports that it ignores a library of another architecture, and starts the program. */
static const struct {
	const char *program, *loader, *message;
} unfit[] = {
	{"guest_static", "/", ""},
	{"guest_32", "/lib/ld-linux.so.2", "cannot be preloaded"},
};

START_TEST(static_and_32_bit_programs_run_without_the_library)
{
	if (access(unfit[_i].loader, F_OK)) {
		printf("# %s: no %s here\n", unfit[_i].program, unfit[_i].loader);
		return;
	}
	play_run(&(struct play){.program = unfit[_i].program, .preload = play_library});
	ck_assert_ptr_nonnull(strstr(play_err, unfit[_i].message));
	ck_assert_str_eq(play_out, "alone\n");
	ck_assert_int_eq(play_status, 5);
}
END_TEST

enum { N_UNFIT = LENGTH(unfit) };

static void add(TCase *tc)
{
	tcase_add_loop_test(tc, a_shell_command_behaves_as_without_the_library, 0, (int)LENGTH(commands));
	tcase_add_test(tc, a_process_without_CUDA_loads_no_driver);
	tcase_add_loop_test(tc, a_shell_script_behaves_as_without_the_library, 0, (int)LENGTH(scenarios));
	tcase_add_loop_test(tc, static_and_32_bit_programs_run_without_the_library, 0, N_UNFIT);
}

int main(int argc, char **argv)
{
	if (getenv(EMULATOR))
		return guests_skip("the machine's own shell cannot take a library of another architecture");
	if (access("/bin/bash", X_OK))
		return guests_skip("there is no bash");
	return play_main(argc, argv, &(struct play_tests){"shell", add}, 1);
}
