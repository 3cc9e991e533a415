/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * A library that ignores other contexts, processes and devices must be reported by the programs that find no fault with
 * the real one.
 */

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/preload/play.h"

static const char *const pools[][4] = {
	{"GPUPOOL_POOL=simple", "SIMGPU_DEVICES=2", "GPUPOOL_LOG=off", NULL},
	{"GPUPOOL_POOL=binned", "SIMGPU_DEVICES=2", "GPUPOOL_LOG=off", NULL},
	{"GPUPOOL_POOL=split", "SIMGPU_DEVICES=2", "GPUPOOL_LOG=off", NULL},
	{"GPUPOOL_POOL=vmm", "SIMGPU_DEVICES=2", "GPUPOOL_LOG=off", NULL},
};

/* Signs of the defect in the output of a program. */
enum { WRONG = 1, EARLY = 2, RACE = 4 };

static const struct {
	const char *program, *scenario;
	unsigned signs;
	bool is_real; /* an emulator cannot start programs */
} rows[] = {
	{"diff_first", "copied", WRONG | EARLY | RACE},
	{"diff_first", "copied_with_access", WRONG | EARLY | RACE},
	{"diff_first", "filled", WRONG | EARLY | RACE},
	{"diff_first", "copied_late", WRONG | RACE},
	{"diff_first", "filled_late", WRONG | RACE},
	{"diff_first", "both_ways", EARLY | RACE},
	{"diff_first_alone", "context", WRONG | EARLY | RACE},
	{"diff_first_alone", "context_late", WRONG | RACE},
	{"diff_first_alone", "sync_memops", EARLY},
	{"diff_first_alone", "dma_buf", EARLY},
	{"diff_first_alone", "tokens", EARLY},
	{"diff_first_alone", "imported", WRONG, true},
};

START_TEST(a_library_that_ignores_access_from_outside_the_context_is_reported)
{
	size_t nth = (size_t)_i % LENGTH(rows);
	bool is_wrong, is_early;

	if (rows[nth].is_real && getenv(EMULATOR)) {
		printf("# %s: not in an emulator\n", rows[nth].scenario);
		return;
	}
	play_run(&(struct play){.program = rows[nth].program,
		.words = {rows[nth].scenario},
		.env = pools[(size_t)_i / LENGTH(rows)],
		.preload = play_library});
	is_wrong = strstr(play_out, "wrong words: ") && !strstr(play_out, "wrong words: 0");
	is_early = strstr(play_out, "early: ") && !strstr(play_out, "early: 0");
	ck_assert_msg(is_wrong == !!(rows[nth].signs & WRONG), "wrong words: got %d, expected %d: %s", is_wrong,
		!!(rows[nth].signs & WRONG), play_out);
	ck_assert_msg(is_early == !!(rows[nth].signs & EARLY), "blocks handed out early: got %d, expected %d: %s",
		is_early, !!(rows[nth].signs & EARLY), play_out);
	/* The simulator ends a process with this status after a race. */
	ck_assert_int_eq(play_status, rows[nth].signs & RACE ? 99 : 0);
}
END_TEST

static void add(TCase *tc)
{
	/* The last row of the last kind is left out, since mapped memory has no handles. */
	tcase_add_loop_test(tc, a_library_that_ignores_access_from_outside_the_context_is_reported, 0,
		(int)(LENGTH(pools) * LENGTH(rows) - 1));
}

int main(int argc, char **argv)
{
	return play_main(argc, argv, &(struct play_tests){"broken", add}, 1);
}
