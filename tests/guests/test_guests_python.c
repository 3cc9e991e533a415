/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Python programs that start processes and threads, handle signals, and end in several ways. */

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "guests.h"

static const struct {
	const char *scenario;
	int status;
	bool is_clean; /* false if multiprocessing leaves sockets of children to the next process */
} scenarios[] = {
	{"plain", 0, true},
	{"threads", 0, true},
	{"fork_before", 0, false},
	{"fork_after", 0, true},
	{"spawn", 0, false},
	{"forkserver", 0, false},
	{"children", 0, true},
	{"handlers", 0, true},
	{"ends", 4, true},
};

/*
 * Python writes no bytecode files. TMPDIR is the test's directory, so that files left behind by Python's helpers are
 * seen.
 */
static const char *const env[] = {"PYTHONDONTWRITEBYTECODE=1", "TMPDIR=.", "GPUPOOL_LOG=off", NULL};

START_TEST(a_Python_program_behaves_as_without_the_library)
{
	struct play play = {.program = PYTHON, .words = {"-s", GUESTS "/guest.py", scenarios[_i].scenario}, .env = env};

	play_same(&play);
	ck_assert_int_eq(play_status, scenarios[_i].status);
	if (scenarios[_i].is_clean)
		ck_assert_str_eq(guests_left(), "");
	play.words[2] = "plain";
	guests_same(&play);
}
END_TEST

static const char *const pooled[] = {"plain", "threads"};

START_TEST(memory_allocated_through_ctypes_comes_from_the_pool)
{
	guests_same(&(struct play){.program = PYTHON, .words = {"-s", GUESTS "/guest.py", pooled[_i]}, .env = env});
	guests_check_pooled();
}
END_TEST

static void add(TCase *tc)
{
	tcase_add_loop_test(tc, a_Python_program_behaves_as_without_the_library, 0, (int)LENGTH(scenarios));
	tcase_add_loop_test(tc, memory_allocated_through_ctypes_comes_from_the_pool, 0, (int)LENGTH(pooled));
}

int main(int argc, char **argv)
{
	if (getenv(EMULATOR))
		return guests_skip("the machine's own Python cannot take a library of another architecture");
	if (!strlen(PYTHON))
		return guests_skip("there is no Python 3");
	return play_main(argc, argv, &(struct play_tests){"python", add}, 1);
}
