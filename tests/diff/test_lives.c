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

/* Mapped memory, of which gpupool sets the access of other devices. */
static const char *const mapped[] = {
	"GPUPOOL_POOL=vmm", "SIMGPU_DEVICES=2", "SIMGPU_STRICT=0", "GPUPOOL_LOG=off", NULL};

static const char *const accesses[][2] = {
	{"devices", "peers"},
	{"devices", "reset-beside"},
	{"devices", "threads-of-two"},
	{"devices_access", "copies"},
	{"devices_access", "copies-after-resets"},
	{"devices_access", "copies-at-once"},
	{"devices_access", "disabled-behind-copies"},
};

static void play_with(const char *const scenario[2], const char *const *env)
{
	char program[64], inside[64];

	snprintf(program, sizeof(program), "diff_%s", scenario[0]);
	snprintf(inside, sizeof(inside), "inside_%s", scenario[0]);
	play_same(&(struct play){.program = program, .inside = inside, .words = {scenario[1]}, .env = env});
}

START_TEST(a_program_that_creates_and_ends_contexts_gets_the_same_answers)
{
	play_with(scenarios[_i % (int)LENGTH(scenarios)], pools[_i / (int)LENGTH(scenarios)]);
}
END_TEST

START_TEST(a_program_that_uses_mapped_memory_of_another_device_gets_the_same_answers)
{
	play_with(accesses[_i], mapped);
}
END_TEST

static void add(TCase *tc)
{
	tcase_add_loop_test(tc, a_program_that_creates_and_ends_contexts_gets_the_same_answers, 0,
		(int)(LENGTH(pools) * LENGTH(scenarios)));
	tcase_add_loop_test(tc, a_program_that_uses_mapped_memory_of_another_device_gets_the_same_answers, 0,
		(int)LENGTH(accesses));
}

int main(int argc, char **argv)
{
	return play_main(argc, argv, &(struct play_tests){"lives", add}, 1);
}
