/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Python: its ways to start processes, its threads, its signals, and its end. */

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "guests.h"

static const struct {
	const char *scenario;
	int status;
	bool is_clean; /* children of multiprocessing end with _exit(), and leave their socket to the next process */
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

/* Without its bytecode files; and what its helpers leave in TMPDIR would be seen here. */
static const char *const env[] = {"PYTHONDONTWRITEBYTECODE=1", "TMPDIR=.", "GPUPOOL_LOG=off", NULL};

START_TEST(a_python_program_never_notices)
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

START_TEST(what_ctypes_finds_is_the_pool)
{
	guests_same(&(struct play){.program = PYTHON, .words = {"-s", GUESTS "/guest.py", pooled[_i]}, .env = env});
	guests_check_pooled();
}
END_TEST

static void add(TCase *tc)
{
	tcase_add_loop_test(tc, a_python_program_never_notices, 0, (int)LENGTH(scenarios));
	tcase_add_loop_test(tc, what_ctypes_finds_is_the_pool, 0, (int)LENGTH(pooled));
}

int main(int argc, char **argv)
{
	if (getenv(EMULATOR))
		return guests_skip("the machine's own Python cannot take a library of another architecture");
	if (!strlen(PYTHON))
		return guests_skip("there is no Python 3");
	return play_main(argc, argv, &(struct play_tests){"python", add}, 1);
}
