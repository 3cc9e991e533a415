/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Programs allocate, free, ask and err, and get the driver's answers, whatever the settings. */

#include <string.h>

#include "play.h"

#define REUSES(pool)                                                                               \
	{pool, "GPUPOOL_REUSE=auto", "GPUPOOL_LOG=off", NULL},                                     \
		{pool, "GPUPOOL_REUSE=ordered", "GPUPOOL_LOG=off", NULL},                          \
		{pool, "GPUPOOL_REUSE=completed", "GPUPOOL_LOG=off", NULL},                        \
		{pool, "GPUPOOL_SYNC_FREE=1", "GPUPOOL_LOG=off", NULL},                            \
		{pool, "GPUPOOL_PENDING_COUNT=0", "GPUPOOL_LOG=off", NULL},                        \
		{pool, "SIMGPU_DRIVER_VERSION=12040", "GPUPOOL_LOG=off", NULL},                    \
		{pool, "GPUPOOL_PINNED=0", "GPUPOOL_LOG=off", NULL}

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

START_TEST(a_program_cannot_tell_whatever_the_settings)
{
	const char *const *scenario = scenarios[_i % (int)LENGTH(scenarios)];

	play_same_or_served(&(struct play){
		.program = scenario[0], .words = {scenario[1]}, .env = settings[_i / (int)LENGTH(scenarios)]});
}
END_TEST

static uint64_t seen[4];

static void look_at_counts(const char *name)
{
	const char *status = play_ask("status");

	seen[0] = play_number(status, "double_frees");
	seen[1] = play_number(status, "invalid_frees");
	seen[2] = play_number(status, "used_bytes");
	seen[3] = play_number(status, "n_used_blocks");
}

static bool has_uuid;

static void look_at_the_uuid(const char *name)
{
	has_uuid = strstr(play_ask("status"), "\"uuid\":\"GPU-73696d75-6c61-7465-6420-677075000000\"");
}

/* Numbers of devices are each process's own. */
START_TEST(a_device_is_told_by_its_uuid)
{
	play_run(&(struct play){
		.program = "app_memory", .words = {"loop"}, .preload = play_library, .at_pause = look_at_the_uuid});
	ck_assert(has_uuid);
}
END_TEST

START_TEST(the_driver_is_asked_far_less_often_than_the_pool)
{
	play_same(&(struct play){.program = "app_memory", .words = {"loop"}});
	ck_assert_uint_gt(play_fact("allocs"), 1000);
	ck_assert_uint_lt(play_fact("cuMemAlloc_v2"), play_fact("allocs") / 10);
	ck_assert_uint_lt(play_fact("cuMemFree_v2") + play_fact("cuMemFreeAsync"), play_fact("allocs") / 10);
}
END_TEST

START_TEST(pinned_memory_is_used_again)
{
	play_same(&(struct play){.program = "app_memory", .words = {"pinned"}});
	ck_assert_uint_le(play_fact("cuMemHostAlloc"), 2 * 8);
}
END_TEST

START_TEST(wrong_frees_are_refused_counted_and_told_once_each)
{
	static const char *const quiet[] = {"GPUPOOL_LOG=off", NULL};
	unsigned lines = 0;

	play_same(&(struct play){
		.program = "app_memory", .words = {"frees"}, .env = quiet, .at_pause = look_at_counts});
	ck_assert_uint_ge(seen[0], 2);
	ck_assert_uint_ge(seen[1], 3);
	ck_assert_uint_eq(seen[0] + seen[1], 6);
	ck_assert_uint_eq(seen[2], 0);
	ck_assert_uint_eq(seen[3], 0);
	play_run(&(struct play){.program = "app_memory", .words = {"frees"}, .preload = play_library});
	for (const char *at = play_err; (at = strchr(at, '\n')); at++)
		lines++;
	ck_assert_uint_eq(lines, 6);
	ck_assert_ptr_nonnull(strstr(play_err, "which is free already"));
	ck_assert_ptr_nonnull(strstr(play_err, "which is inside a block"));
}
END_TEST

START_TEST(errno_is_the_programs_own)
{
	static const char *const quiet[] = {"GPUPOOL_LOG=error", NULL};

	play_same(&(struct play){.program = "app_memory", .words = {"errno"}, .env = quiet});
	ck_assert_uint_eq(play_fact("errno"), 77);
}
END_TEST

START_TEST(pitches_are_asked_of_the_driver_once)
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

START_TEST(memory_info_shows_the_limit_as_the_whole_device)
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

static void look_at_reuse(const char *name)
{
	reuse_after_export = strstr(play_ask("status"), "\"reuse\":\"completed\"");
}

START_TEST(what_was_exported_is_never_used_again)
{
	const char *env[] = {pools[_i], "GPUPOOL_LOG=off", NULL};

	play_same(&(struct play){
		.program = "app_query", .words = {"export"}, .env = env, .at_pause = look_at_reuse});
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
	tcase_add_loop_test(
		tc, a_program_cannot_tell_whatever_the_settings, 0, (int)(LENGTH(settings) * LENGTH(scenarios)));
	tcase_add_test(tc, the_driver_is_asked_far_less_often_than_the_pool);
	tcase_add_test(tc, pinned_memory_is_used_again);
	tcase_add_test(tc, a_device_is_told_by_its_uuid);
	tcase_add_test(tc, wrong_frees_are_refused_counted_and_told_once_each);
	tcase_add_test(tc, errno_is_the_programs_own);
	tcase_add_test(tc, pitches_are_asked_of_the_driver_once);
	tcase_add_loop_test(tc, memory_info_shows_the_limit_as_the_whole_device, 0, (int)LENGTH(totals));
	tcase_add_loop_test(tc, what_was_exported_is_never_used_again, 0, (int)LENGTH(pools));
}

int main(int argc, char **argv)
{
	return play_main(argc, argv, &(struct play_tests){"memory", add}, 1);
}
