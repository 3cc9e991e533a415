/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Runs the programs about captures with the library built into them, with its checks on, and in some builds under a
 * sanitiser. The programs get the same answers as without the library (T5.2 to T5.4), and fences are recorded again
 * afterwards.
 */

#include <stdio.h>

#include "tests/preload/play.h"

static const char *const pools[][4] = {
	{"GPUPOOL_POOL=none", "GPUPOOL_LOG=off", NULL},
	{"GPUPOOL_POOL=split", "GPUPOOL_LOG=off", NULL},
	{"GPUPOOL_POOL=split", "GPUPOOL_REUSE=completed", "GPUPOOL_LOG=off", NULL},
	{"GPUPOOL_POOL=split", "GPUPOOL_SYNC_FREE=1", "GPUPOOL_LOG=off", NULL},
	{"GPUPOOL_POOL=split", "SIMGPU_DRIVER_VERSION=12040", "GPUPOOL_LOG=off", NULL},
};

/* Program, scenario, and the fact that holds the number of addresses of a loop of allocations after the capture. */
static const char *const scenarios[][3] = {
	{"capture_ends", "no-begin", "addresses after no begin"},
	{"capture_ends", "begin-twice", "addresses after two begins"},
	{"capture_ends", "unjoined", "addresses after unjoined"},
	{"capture_ends", "unmatched", "addresses after unmatched"},
	{"capture_ends", "destroyed", "addresses after destroy"},
	{"capture_ends", "destroyed-global", "addresses after destroy in global mode"},
	{"capture_ends", "wrong-thread", "addresses after the wrong thread"},
	{"capture_ends", "thread-gone", "addresses after a thread that ended"},
	{"capture_ends", "thread-gone-with-its-stream", "addresses after a thread that ended with its stream"},
	{"capture_ends", "invalidated", "addresses after invalidation"},
	{"capture_ends", "isolated", "addresses after a merge"},
	{"capture_ends", "implicit", "addresses after the legacy stream"},
	{"capture_ends", "no-output", "addresses after an end without an output"},
	{"capture_ends", "context-destroyed", "addresses after a context that was destroyed"},
	{"capture_ends", "primary-reset", "addresses after a reset"},
	{"capture_ends", "primary-released", "addresses after a release"},
	{"capture_memory", "after-capture", "addresses after captures"},
	{"capture_memory", "freed-before", "addresses after frees before a capture"},
	{"capture_memory", "freed-inside", "addresses after frees inside a capture"},
	{"capture_memory", "replays", "addresses after replays"},
	{"capture_memory", "freed-under-a-replay", "addresses after frees under a replay"},
	{"capture_memory", "to-graph", "addresses after a capture to a graph"},
	{"capture_memory", "memory-nodes", "addresses after memory nodes"},
	{"capture_memory", "joined", "addresses after a capture of three streams"},
	{"capture_threads", "race", "addresses after a race"},
	{"capture_threads", "race-of-modes", "addresses after a race"},
	{"capture_threads", "race-of-contexts", "addresses after a race"},
	{"capture_threads", "own-streams", "addresses after two threads' own streams"},
	{"capture_threads", "own-stream-frees", "addresses after frees on the thread's own stream"},
	{"capture_threads", "two-contexts", "addresses after two contexts"},
	{"capture_threads", "across", "addresses after captures in two contexts"},
};

/* A loop has 96 rounds. If the library still assumes a capture that has ended, it finds out within this many. */
enum { ADDRESSES_MAX = 64 };

START_TEST(a_program_with_captures_gets_the_same_answers_and_reuses_memory_afterwards)
{
	const char *const *scenario = scenarios[_i % (int)LENGTH(scenarios)];
	char program[64], inside[64];

	snprintf(program, sizeof(program), "diff_%s", scenario[0]);
	snprintf(inside, sizeof(inside), "inside_%s", scenario[0]);
	play_same(&(struct play){.program = program,
		.inside = inside,
		.words = {scenario[1]},
		.env = pools[_i / (int)LENGTH(scenarios)]});
	ck_assert_uint_le(play_fact(scenario[2]), ADDRESSES_MAX);
}
END_TEST

START_TEST(memory_freed_in_a_capture_is_not_reused_before_the_capture_ends)
{
	play_same(&(struct play){.program = "diff_capture_memory",
		.inside = "inside_capture_memory",
		.words = {"reuse"},
		.env = pools[_i]});
	ck_assert_uint_eq(play_fact("global") + play_fact("local") + play_fact("relaxed"), 0);
}
END_TEST

static void add(TCase *tc)
{
	tcase_add_loop_test(tc, a_program_with_captures_gets_the_same_answers_and_reuses_memory_afterwards, 0,
		(int)(LENGTH(pools) * LENGTH(scenarios)));
	tcase_add_loop_test(tc, memory_freed_in_a_capture_is_not_reused_before_the_capture_ends, 0, (int)LENGTH(pools));
}

int main(int argc, char **argv)
{
	return play_main(argc, argv, &(struct play_tests){"captures", add}, 1);
}
