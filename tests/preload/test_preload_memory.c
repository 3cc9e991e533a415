/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Programs allocate, free, query and make mistakes, and get the driver's answers under all settings. */

#include <string.h>

#include "play.h"

#define REUSES(pool)                                                            \
	{pool, "GPUPOOL_REUSE=auto", "GPUPOOL_LOG=off", NULL},                  \
		{pool, "GPUPOOL_REUSE=ordered", "GPUPOOL_LOG=off", NULL},       \
		{pool, "GPUPOOL_REUSE=completed", "GPUPOOL_LOG=off", NULL},     \
		{pool, "GPUPOOL_SYNC_FREE=1", "GPUPOOL_LOG=off", NULL},         \
		{pool, "GPUPOOL_PENDING_COUNT=0", "GPUPOOL_LOG=off", NULL},     \
		{pool, "SIMGPU_DRIVER_VERSION=12040", "GPUPOOL_LOG=off", NULL}, \
	{                                                                       \
		pool, "GPUPOOL_PINNED=0", "GPUPOOL_LOG=off", NULL               \
	}

static const char *const settings[][4] = {
	{"GPUPOOL=0", NULL},
	REUSES("GPUPOOL_POOL=none"),
	REUSES("GPUPOOL_POOL=simple"),
	REUSES("GPUPOOL_POOL=binned"),
	REUSES("GPUPOOL_POOL=split"),
	REUSES("GPUPOOL_POOL=vmm"),
};

static const char *const scenarios[][2] = {
	{"app_memory", "loop"},
	{"app_memory", "frees"},
	{"app_memory", "pinned-frees"},
	{"app_memory", "zeros"},
	{"app_memory", "no-context"},
	{"app_memory", "mixed"},
	{"app_memory", "pitch"},
	{"app_memory", "pinned"},
	{"app_query", "info"},
	{"app_query", "take-free"},
	{"app_query", "range"},
	{"app_query", "ids"},
	{"app_context", "two"},
	{"app_context", "fault"},
	{"app_capture", "miss"},
};

START_TEST(a_program_behaves_as_without_the_library_under_all_settings)
{
	const char *const *scenario = scenarios[_i % (int)LENGTH(scenarios)];

	play_same_or_served(&(struct play){
		.program = scenario[0], .words = {scenario[1]}, .env = settings[_i / (int)LENGTH(scenarios)]});
}
END_TEST

static uint64_t seen[4];

static void read_counts(const char *name)
{
	const char *status = play_ask("status");

	seen[0] = play_number(status, "double_frees");
	seen[1] = play_number(status, "invalid_frees");
	seen[2] = play_number(status, "used_bytes");
	seen[3] = play_number(status, "n_used_blocks");
}

static bool has_uuid;

static void check_uuid(const char *name)
{
	has_uuid = strstr(play_ask("status"), "\"uuid\":\"GPU-73696d75-6c61-7465-6420-677075000000\"");
}

/* Each process numbers its devices differently, so only the uuid identifies a device. */
START_TEST(status_identifies_a_device_by_its_uuid)
{
	play_run(&(struct play){
		.program = "app_memory", .words = {"loop"}, .preload = play_library, .at_pause = check_uuid});
	ck_assert(has_uuid);
}
END_TEST

START_TEST(fewer_than_a_tenth_of_allocations_and_frees_reach_the_driver)
{
	play_same(&(struct play){.program = "app_memory", .words = {"loop"}});
	ck_assert_uint_gt(play_fact("allocs"), 1000);
	ck_assert_uint_lt(play_fact("cuMemAlloc_v2"), play_fact("allocs") / 10);
	ck_assert_uint_lt(play_fact("cuMemFree_v2") + play_fact("cuMemFreeAsync"), play_fact("allocs") / 10);
}
END_TEST

START_TEST(pinned_memory_of_each_set_of_flags_is_reused)
{
	play_same(&(struct play){.program = "app_memory", .words = {"pinned"}});
	ck_assert_uint_le(play_fact("cuMemHostAlloc"), 2 * 8);
}
END_TEST

START_TEST(wrong_frees_are_refused_counted_and_logged_once_each)
{
	static const char *const quiet[] = {"GPUPOOL_LOG=off", NULL};
	unsigned lines = 0;

	play_same(&(struct play){.program = "app_memory", .words = {"frees"}, .env = quiet, .at_pause = read_counts});
	ck_assert_uint_ge(seen[0], 2);
	ck_assert_uint_ge(seen[1], 3);
	ck_assert_uint_eq(seen[0] + seen[1], 6);
	ck_assert_uint_eq(seen[2], 0);
	ck_assert_uint_eq(seen[3], 0);
	play_run(&(struct play){.program = "app_memory", .words = {"frees"}, .preload = play_library});
	for (const char *at = play_err; (at = strchr(at, '\n')); at++)
		lines++;
	ck_assert_uint_eq(lines, 6);
	ck_assert_ptr_nonnull(strstr(play_err, ": the block is already free"));
	ck_assert_ptr_nonnull(strstr(play_err, ": the address is inside a block"));
}
END_TEST

START_TEST(allocations_and_frees_leave_errno_unchanged)
{
	static const char *const quiet[] = {"GPUPOOL_LOG=error", NULL};

	play_same(&(struct play){.program = "app_memory", .words = {"errno"}, .env = quiet});
	ck_assert_uint_eq(play_fact("errno"), 77);
}
END_TEST

START_TEST(the_driver_is_asked_for_the_pitch_only_once)
{
	play_same(&(struct play){.program = "app_memory", .words = {"pitch"}});
	ck_assert_uint_eq(play_fact("cuMemAllocPitch_v2"), 1);
}
END_TEST

static const struct {
	const char *limit;
	uint64_t total;
} totals[] = {
	{"GPUPOOL_LIMIT=none", 1024 * MIB},
	{"GPUPOOL_LIMIT=512MiB", 512 * MIB},
	{"GPUPOOL_LIMIT=50%", 512 * MIB},
	{"GPUPOOL_LIMIT=4GiB", 1024 * MIB},
};

START_TEST(cuMemGetInfo_reports_the_limit_as_the_size_of_the_device)
{
	const char *env[] = {totals[_i].limit, "SIMGPU_MEMORY=1GiB", NULL};

	play_same(&(struct play){.program = "app_query", .words = {"info"}, .env = env});
	ck_assert_uint_eq(play_fact("total"), totals[_i].total);
	ck_assert_uint_le(play_fact("free"), totals[_i].total);
	ck_assert_uint_ge(play_fact("free"), totals[_i].total - 16 * MIB);
}
END_TEST

static const char *const pools[] = {
	"GPUPOOL_POOL=none", "GPUPOOL_POOL=simple", "GPUPOOL_POOL=binned", "GPUPOOL_POOL=split"};

static const char *reuse_after_export;

static void read_reuse(const char *name)
{
	reuse_after_export = strstr(play_ask("status"), "\"reuse\":\"completed\"");
}

START_TEST(an_exported_block_is_never_reused)
{
	const char *env[] = {pools[_i], "GPUPOOL_LOG=off", NULL};

	play_same(&(struct play){.program = "app_query", .words = {"export"}, .env = env, .at_pause = read_reuse});
	ck_assert_ptr_nonnull(reuse_after_export);
	ck_assert_uint_eq(play_fact("ipc-1000"), 0);
	ck_assert_uint_eq(play_fact("returns-1000"), 0);
	ck_assert_uint_eq(play_fact("ipc-2097152"), 0);
	ck_assert_uint_eq(play_fact("returns-2097152"), 0);
	ck_assert_uint_eq(play_fact("ipc-67108864"), 0);
	ck_assert_uint_eq(play_fact("returns-67108864"), 0);
}
END_TEST

static void add(TCase *tc)
{
	tcase_add_loop_test(tc, a_program_behaves_as_without_the_library_under_all_settings, 0,
		(int)(LENGTH(settings) * LENGTH(scenarios)));
	tcase_add_test(tc, fewer_than_a_tenth_of_allocations_and_frees_reach_the_driver);
	tcase_add_test(tc, pinned_memory_of_each_set_of_flags_is_reused);
	tcase_add_test(tc, status_identifies_a_device_by_its_uuid);
	tcase_add_test(tc, wrong_frees_are_refused_counted_and_logged_once_each);
	tcase_add_test(tc, allocations_and_frees_leave_errno_unchanged);
	tcase_add_test(tc, the_driver_is_asked_for_the_pitch_only_once);
	tcase_add_loop_test(tc, cuMemGetInfo_reports_the_limit_as_the_size_of_the_device, 0, (int)LENGTH(totals));
	tcase_add_loop_test(tc, an_exported_block_is_never_reused, 0, (int)LENGTH(pools));
}

int main(int argc, char **argv)
{
	return play_main(argc, argv, &(struct play_tests){"memory", add}, 1);
}
