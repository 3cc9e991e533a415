/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * A program under a limit sees the same as on a smaller device without the library, also for memory that is not pooled:
 * a refusal has the same code, and memory can be allocated again after every kind of free.
 */

#include <string.h>

#include "tests/preload/play.h"

static const char *const pools[] = {
	"GPUPOOL_POOL=none", "GPUPOOL_POOL=simple", "GPUPOOL_POOL=binned", "GPUPOOL_POOL=split", "GPUPOOL_POOL=vmm"};

static const char *const scenarios[] = {"behind-a-cache", "all-of-it", "references", "mappings", "without-memory",
	"host-memory", "pools", "contexts", "reset", "no-context"};

static char raw_out[PLAY_OUTPUT_MAX];

START_TEST(a_program_under_a_limit_gets_the_answers_of_a_smaller_device)
{
	static const char *const small_device[] = {"SIMGPU_MEMORY=2GiB", NULL};
	const char *limit[] = {pools[_i % (int)LENGTH(pools)], "GPUPOOL_LIMIT=2GiB", "GPUPOOL_LOG=error", NULL};
	const char *scenario = scenarios[_i / (int)LENGTH(pools)];

	play_run(&(struct play){.program = "diff_unpooled", .words = {scenario}, .env = small_device});
	ck_assert_int_eq(play_status, 0);
	strcpy(raw_out, play_out);
	play_run(
		&(struct play){.program = "diff_unpooled", .words = {scenario}, .env = limit, .preload = play_library});
	ck_assert_str_eq(play_err, "");
	ck_assert_int_eq(play_status, 0);
	ck_assert_str_eq(play_out, raw_out);
}
END_TEST

static uint64_t unpooled_bytes[2];
static unsigned n_reads;

static void read_unpooled(const char *name)
{
	const char *status = play_ask("status");

	ck_assert_uint_lt(n_reads, 2);
	unpooled_bytes[n_reads++] = play_number(status, "unpooled_bytes");
}

START_TEST(unpooled_bytes_are_zero_after_every_kind_of_free)
{
	const char *env[] = {pools[_i], "GPUPOOL_ASYNC=off", NULL};

	play_same(&(struct play){
		.program = "diff_unpooled", .words = {"account"}, .env = env, .at_pause = read_unpooled});
	ck_assert_uint_eq(n_reads, 2);
	/* Eleven kinds are in use. The mipmapped array has a layer of 32 MiB, and a third more in its other levels. */
	ck_assert_uint_ge(unpooled_bytes[0], 10 * 64 * MIB + 42 * MIB);
	ck_assert_uint_lt(unpooled_bytes[0], 10 * 64 * MIB + 43 * MIB);
	ck_assert_uint_eq(unpooled_bytes[1], 0);
}
END_TEST

static void add(TCase *tc)
{
	tcase_add_loop_test(tc, a_program_under_a_limit_gets_the_answers_of_a_smaller_device, 0,
		(int)(LENGTH(pools) * LENGTH(scenarios)));
	tcase_add_loop_test(tc, unpooled_bytes_are_zero_after_every_kind_of_free, 0, (int)LENGTH(pools));
}

int main(int argc, char **argv)
{
	return play_main(argc, argv, &(struct play_tests){"unpooled", add}, 1);
}
