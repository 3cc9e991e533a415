/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Out of memory: the retry rounds release cached memory before a request fails, and a limit is never exceeded. */

#include <string.h>

#include "play.h"

/* Hides the out-of-memory message on stderr, which must be the same with and without the library. */
#define QUIET "GPUPOOL_LOG=error"

#define RESERVES(pool)                                                                                             \
	{pool, QUIET, "SIMGPU_MEMORY=1GiB", "GPUPOOL_RESERVE=0", NULL}, {pool, QUIET, "SIMGPU_MEMORY=1GiB", NULL}, \
		{pool, QUIET, "SIMGPU_MEMORY=1GiB", "GPUPOOL_REUSE=completed", "GPUPOOL_RESERVE=0", NULL},         \
	{                                                                                                          \
		pool, QUIET, "SIMGPU_MEMORY=1GiB", "SIMGPU_DRIVER_VERSION=12040", NULL                             \
	}

static const char *const settings[][6] = {
	RESERVES("GPUPOOL_POOL=none"),
	RESERVES("GPUPOOL_POOL=simple"),
	RESERVES("GPUPOOL_POOL=binned"),
	RESERVES("GPUPOOL_POOL=split"),
	RESERVES("GPUPOOL_POOL=vmm"),
};

static const char *const scenarios[] = {
	"capacity", "device", "managed", "async", "physical", "array", "pitched", "driver-pool", "busy"};

START_TEST(a_request_fails_only_if_the_driver_alone_would_refuse_it)
{
	play_same(&(struct play){.program = "app_oom",
		.words = {scenarios[_i % (int)LENGTH(scenarios)]},
		.env = settings[_i / (int)LENGTH(scenarios)]});
}
END_TEST

static const char *const kinds[] = {
	"GPUPOOL_POOL=none", "GPUPOOL_POOL=simple", "GPUPOOL_POOL=binned", "GPUPOOL_POOL=split", "GPUPOOL_POOL=vmm"};

static uint64_t rounds;

/* Counts how many times the second or a later round released memory. */
static void read_rounds(const char *name)
{
	const char *at = play_ask("status");

	for (rounds = 0; (at = strstr(at, "\"round\":")); at++)
		if (play_number(at, "round") >= 2 && play_number(at, "gained_bytes") > 0)
			rounds += play_number(at, "count");
}

START_TEST(retry_rounds_release_a_full_cache)
{
	/* The loop leaves out the kind none, which has no cache to release. */
	const char *env[] = {kinds[_i], QUIET, "SIMGPU_MEMORY=1GiB", "GPUPOOL_RESERVE=0", NULL};

	play_same(&(struct play){.program = "app_oom", .words = {"device"}, .env = env, .at_pause = read_rounds});
	ck_assert_uint_gt(rounds, 0);
}
END_TEST

START_TEST(the_drivers_own_pool_is_trimmed_before_a_request_fails)
{
	const char *env[] = {kinds[_i], QUIET, "SIMGPU_MEMORY=1GiB", NULL};

	play_same(&(struct play){.program = "app_oom", .words = {"driver-pool"}, .env = env});
	ck_assert_uint_eq(play_fact("large"), 0);
}
END_TEST

static uint64_t movable_bytes;

static void read_movable(const char *name)
{
	movable_bytes = play_number(play_ask("oom"), "movable_bytes");
}

/* The gaps lie between large blocks and are whole granules, counted from the guard with which a segment begins. */
START_TEST(gaps_between_large_blocks_count_as_movable)
{
	const char *env[] = {"GPUPOOL_POOL=split", QUIET, "SIMGPU_MEMORY=1GiB", "GPUPOOL_RESERVE=0", NULL};

	play_run(&(struct play){.program = "app_oom",
		.words = {"gaps"},
		.env = env,
		.preload = play_library,
		.at_pause = read_movable});
	ck_assert_uint_eq(play_fact("large"), 2);
	ck_assert_uint_ge(movable_bytes, play_fact("gap bytes") / 2);
}
END_TEST

static const char *const limits[] = {"GPUPOOL_LIMIT=256MiB", "GPUPOOL_LIMIT=268435456", "GPUPOOL_LIMIT=25%",
	"GPUPOOL_LIMIT=0=256MiB", "GPUPOOL_LIMIT=0=25%"};

static uint64_t limit_total, limit_pinned;

static void read_limit(const char *name)
{
	const char *status = play_ask("status");

	limit_total = play_number(status, "peak_total_bytes");
	limit_pinned = play_number(strstr(status, "\"pinned\":{"), "used_bytes");
}

/* Tests every kind of pool with every notation of a limit. */
START_TEST(a_limit_is_never_exceeded_and_can_be_used_in_full)
{
	const char *env[] = {
		limits[_i / (int)LENGTH(kinds)], kinds[_i % (int)LENGTH(kinds)], QUIET, "SIMGPU_MEMORY=1GiB", NULL};

	play_same(&(struct play){.program = "app_oom", .words = {"limit"}, .env = env, .at_pause = read_limit});
	ck_assert_str_eq(play_err, "");
	ck_assert_uint_eq(play_fact("total"), 256 * MIB);
	ck_assert_uint_le(play_fact("free"), 256 * MIB);
	/* A segment keeps its first bytes for itself, so one of 16 MiB has room for seven blocks of 2 MiB. */
	ck_assert_uint_ge(play_fact("blocks"), strstr(env[1], "split") ? 128 * 7 / 8 : 128);
	ck_assert_uint_le(play_fact("blocks"), 128);
	ck_assert_uint_eq(play_fact("4 MiB more"), 2);
	ck_assert_uint_eq(play_fact("managed"), 2);
	ck_assert_uint_le(play_fact("free when full"), 256 * MIB - play_fact("blocks") * 2 * MIB);
	ck_assert_uint_eq(play_fact("alloc after the frees"), 0);
	ck_assert_uint_eq(play_fact("pinned"), 0);
	ck_assert_uint_le(limit_total, 256 * MIB);
	ck_assert_uint_ge(limit_pinned, 64 * MIB);
}
END_TEST

static const char *const bad_limits[] = {
	"GPUPOOL_LIMIT=lots", "GPUPOOL_LIMIT=-1", "GPUPOOL_LIMIT=4Gx", "GPUPOOL_LIMIT=101%", "GPUPOOL_LIMIT=0=1GiB,x"};

START_TEST(an_invalid_limit_refuses_all_allocations_with_one_message)
{
	const char *env[] = {bad_limits[_i], "SIMGPU_MEMORY=1GiB", NULL};

	play_run(&(struct play){.program = "app_oom", .words = {"limit"}, .env = env, .preload = play_library});
	ck_assert_int_eq(play_status, 0);
	ck_assert_uint_eq(play_fact("blocks"), 0);
	ck_assert_uint_eq(play_fact("managed"), 2);
	ck_assert_uint_eq(play_fact("alloc after the frees"), 2);
	ck_assert_uint_eq(play_fact("total"), 0);
	ck_assert_ptr_nonnull(strstr(play_err, "error: "));
	ck_assert_ptr_nonnull(strstr(play_err, "GPUPOOL_LIMIT"));
	ck_assert_uint_eq(strcspn(play_err, "\n") + 1, strlen(play_err));
}
END_TEST

static void add(TCase *tc)
{
	tcase_add_loop_test(tc, a_request_fails_only_if_the_driver_alone_would_refuse_it, 0,
		(int)(LENGTH(settings) * LENGTH(scenarios)));
	tcase_add_loop_test(tc, retry_rounds_release_a_full_cache, 1, (int)LENGTH(kinds));
	tcase_add_loop_test(tc, the_drivers_own_pool_is_trimmed_before_a_request_fails, 0, (int)LENGTH(kinds));
	tcase_add_test(tc, gaps_between_large_blocks_count_as_movable);
	tcase_add_loop_test(
		tc, a_limit_is_never_exceeded_and_can_be_used_in_full, 0, (int)(LENGTH(limits) * LENGTH(kinds)));
	tcase_add_loop_test(tc, an_invalid_limit_refuses_all_allocations_with_one_message, 0, (int)LENGTH(bad_limits));
}

int main(int argc, char **argv)
{
	return play_main(argc, argv, &(struct play_tests){"oom", add}, 1);
}
