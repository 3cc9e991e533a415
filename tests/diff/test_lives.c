/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Runs the programs about the lives of contexts with the library built into them, with its checks on, and in some
 * builds under a sanitiser. The programs get the same answers as without the library.
 */

#include <stdio.h>

#include "tests/preload/play.h"

static const char *const pools[][4] = {
	{"GPUPOOL_POOL=none", "SIMGPU_DEVICES=2", "GPUPOOL_LOG=off", NULL},
	{"GPUPOOL_POOL=simple", "SIMGPU_DEVICES=2", "GPUPOOL_LOG=off", NULL},
	{"GPUPOOL_POOL=split", "SIMGPU_DEVICES=2", "GPUPOOL_LOG=off", NULL},
};

static const char *const scenarios[][2] = {
	{"caches", "contexts"},
	{"caches", "ended"},
	{"caches", "in-destructors"},
	{"caches", "reset"},
	{"life", "attached"},
	{"life", "pinned"},
	{"life", "refused"},
	{"life", "resets"},
	{"life", "stack"},
	{"life", "floating"},
	{"life", "under-work"},
	{"life_fork", "before"},
	{"life_fork", "after"},
	{"life_threads", "destroyed-under"},
	{"life_threads", "ended-elsewhere"},
	{"life_threads", "ended-threads"},
	{"life_threads", "released-under"},
	{"life_threads", "reset-under"},
	{"life_threads", "retained"},
	{"green", "capture"},
	{"green", "destruction"},
	{"green", "last-reference"},
	{"green", "newcomer"},
	{"green", "refused-reset"},
	{"green", "reuse"},
	{"green", "threads"},
	{"virtual", "contexts"},
	{"virtual", "orders"},
	{"virtual", "queries"},
	{"virtual", "stale-handles"},
	{"virtual", "threads"},
	{"virtual", "unusual"},
	{"devices", "peers"},
	{"devices", "reset-beside"},
	{"devices", "threads-of-two"},
};

START_TEST(a_program_that_creates_and_ends_contexts_gets_the_same_answers)
{
	const char *const *scenario = scenarios[_i % (int)LENGTH(scenarios)];
	char program[64], inside[64];

	snprintf(program, sizeof(program), "diff_%s", scenario[0]);
	snprintf(inside, sizeof(inside), "inside_%s", scenario[0]);
	play_same(&(struct play){.program = program,
		.inside = inside,
		.words = {scenario[1]},
		.env = pools[_i / (int)LENGTH(scenarios)]});
}
END_TEST

static void add(TCase *tc)
{
	tcase_add_loop_test(tc, a_program_that_creates_and_ends_contexts_gets_the_same_answers, 0,
		(int)(LENGTH(pools) * LENGTH(scenarios)));
}

int main(int argc, char **argv)
{
	return play_main(argc, argv, &(struct play_tests){"lives", add}, 1);
}
