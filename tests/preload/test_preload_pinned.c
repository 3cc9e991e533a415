/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Large pinned memory that gpupool maps, touches and registers itself: the program cannot tell it from the driver's. */

#include <string.h>

#include "play.h"

#define THREADS "GPUPOOL_PINNED_THREADS=2"

static const char *const on[] = {THREADS, NULL};

static const char *const kinds[][4] = {
	{"GPUPOOL_POOL=split", "GPUPOOL_LOG=off", THREADS, NULL},
	{"GPUPOOL_POOL=none", "GPUPOOL_LOG=off", THREADS, NULL},
	{"GPUPOOL_DEBUG=poison,guard", "GPUPOOL_LOG=off", THREADS, NULL},
};

/* The four sets of flags without write-combining, and cuMemAllocHost. */
START_TEST(the_driver_answers_for_registered_memory_as_for_its_own)
{
	play_same(&(struct play){.program = "app_pinned", .words = {"answers"}, .env = kinds[_i]});
	ck_assert_uint_ge(play_fact("cuMemHostRegister_v2"), 5);
	ck_assert_uint_ge(play_fact("cuMemHostAlloc"), 4);
}
END_TEST

static const char *const scenarios[] = {"fork", "ends", "threads"};

START_TEST(a_program_with_large_pinned_memory_behaves_as_without_the_library)
{
	play_same(&(struct play){.program = "app_pinned", .words = {scenarios[_i]}, .env = on});
}
END_TEST

START_TEST(memory_is_registered_during_a_capture_that_forbids_allocations)
{
	play_run(&(struct play){.program = "app_pinned", .words = {"captured"}, .env = on, .preload = play_library});
	ck_assert_int_eq(play_status, 0);
	ck_assert_uint_ge(play_fact("cuMemHostRegister_v2"), 2);
	ck_assert_uint_eq(play_fact("cuMemHostAlloc"), 0);
}
END_TEST

static uint64_t registrations, registered, total, allocations;

static void read_pinned(const char *name)
{
	const char *status = strstr(play_ask("status"), "\"pinned\":{");

	ck_assert_ptr_nonnull(status);
	registrations = play_number(status, "registrations");
	registered = play_number(status, "registered_bytes");
	total = play_number(status, "total_bytes");
	allocations = play_number(status, "driver_allocs");
}

START_TEST(memory_from_16_mib_on_is_registered_and_counted_by_default)
{
	play_same(&(struct play){.program = "app_pinned", .words = {"sizes"}, .at_pause = read_pinned});
	ck_assert_uint_eq(registrations, 3);
	ck_assert_uint_eq(play_fact("cuMemHostRegister_v2"), 3);
	ck_assert_uint_eq(play_fact("cuMemHostAlloc"), 1);
	ck_assert_uint_eq(allocations, 4);
	ck_assert_uint_ge(registered, 72 * MIB);
	ck_assert_uint_gt(total, registered);
}
END_TEST

START_TEST(registered_memory_is_counted_while_the_program_is_recorded)
{
	static const char *const env[] = {THREADS, "GPUPOOL_RECORD=rec.%p", NULL};

	play_same(&(struct play){.program = "app_pinned", .words = {"sizes"}, .env = env, .at_pause = read_pinned});
	ck_assert_uint_eq(registrations, 3);
	ck_assert_uint_ge(registered, 72 * MIB);
}
END_TEST

/* Registered memory would not be right there, or the user does not want it. */
static const char *const unfit[][4] = {
	{"GPUPOOL_PINNED_THREADS=0", NULL},
	{THREADS, "SIMGPU_DEVICES=2", "SIMGPU_LACKS=91,99", NULL},
	{THREADS, "SIMGPU_LACKS=91", NULL},
	{THREADS, "SIMGPU_LACKS=99", NULL},
};

START_TEST(memory_is_the_drivers_where_registered_memory_would_not_be_right)
{
	play_same(
		&(struct play){.program = "app_pinned", .words = {"sizes"}, .env = unfit[_i], .at_pause = read_pinned});
	ck_assert_uint_eq(play_fact("cuMemHostRegister_v2"), 0);
	ck_assert_uint_eq(play_fact("cuMemHostAlloc"), 4);
	ck_assert_uint_eq(registrations, 0);
	ck_assert_uint_eq(registered, 0);
}
END_TEST

/* The result is that of the driver's own allocation, and so are the counts. */
static const char *const failing[][3] = {
	{"SIMGPU_FAULT=cuMemHostRegister_v2:1+=2", NULL},
	{"SIMGPU_FAULT=cuMemHostRegister_v2:1+=1", NULL},
	{"SIMGPU_FAULT=cuMemHostRegister_v2:1+=712", NULL},
	{"SIMGPU_FAULT=cuMemHostRegister_v2:1+=801", NULL},
	{"SIMGPU_FAULT=cuDeviceGetCount:1+=3", NULL},
};

START_TEST(memory_that_cannot_be_registered_is_allocated_by_the_driver)
{
	const char *env[] = {THREADS, "GPUPOOL_LOG=error", failing[_i][0], NULL};

	play_same(&(struct play){.program = "app_pinned", .words = {"faults"}, .env = env, .at_pause = read_pinned});
	ck_assert_uint_eq(play_fact("cuMemHostAlloc"), 3);
	ck_assert_uint_eq(allocations, 3);
	ck_assert_uint_eq(registrations, 0);
	ck_assert_uint_eq(registered, 0);
	ck_assert_uint_ge(total, 96 * MIB);
}
END_TEST

START_TEST(a_size_that_the_driver_has_refused_to_register_is_not_tried_again)
{
	static const char *const env[] = {THREADS, "SIMGPU_FAULT=cuMemHostRegister_v2:2=2", NULL};

	play_same(&(struct play){.program = "app_pinned", .words = {"sizes"}, .env = env, .at_pause = read_pinned});
	/* One is registered, the next one is refused, and another one is larger than that. */
	ck_assert_uint_eq(registrations, 1);
	ck_assert_uint_eq(play_fact("cuMemHostRegister_v2"), 2);
	ck_assert_uint_eq(play_fact("cuMemHostAlloc"), 3);
}
END_TEST

START_TEST(registered_memory_goes_back_to_the_driver_when_a_limit_asks_for_it)
{
	static const char *const env[] = {THREADS, "GPUPOOL_PINNED_LIMIT=48MiB", "GPUPOOL_LOG=off", NULL};

	play_run(&(struct play){.program = "app_pinned",
		.words = {"limits"},
		.env = env,
		.preload = play_library,
		.at_pause = read_pinned});
	ck_assert_int_eq(play_status, 0);
	ck_assert_uint_eq(play_fact("beyond"), 2);
	ck_assert_uint_eq(play_fact("cuMemHostAlloc"), 0);
	ck_assert_uint_eq(play_fact("cuMemFreeHost"), 0);
	ck_assert_uint_ge(play_fact("cuMemHostUnregister"), 2);
	ck_assert_uint_eq(registered, total);
	ck_assert_uint_le(total, 48 * MIB);
}
END_TEST

START_TEST(large_pinned_memory_is_resident_unless_the_driver_allocates_it)
{
	static const char *const env[] = {"GPUPOOL_PINNED_THREADS=0", NULL};

	play_run(&(struct play){.program = "app_pinned", .words = {"resident"}, .env = on, .preload = play_library});
	ck_assert_uint_ge(play_fact("resident"), 60);
	play_run(&(struct play){.program = "app_pinned", .words = {"resident"}, .env = env, .preload = play_library});
	ck_assert_uint_le(play_fact("resident"), 20);
}
END_TEST

static void add(TCase *tc)
{
	tcase_add_loop_test(tc, the_driver_answers_for_registered_memory_as_for_its_own, 0, (int)LENGTH(kinds));
	tcase_add_loop_test(
		tc, a_program_with_large_pinned_memory_behaves_as_without_the_library, 0, (int)LENGTH(scenarios));
	tcase_add_test(tc, memory_is_registered_during_a_capture_that_forbids_allocations);
	tcase_add_test(tc, memory_from_16_mib_on_is_registered_and_counted_by_default);
	tcase_add_test(tc, registered_memory_is_counted_while_the_program_is_recorded);
	tcase_add_loop_test(
		tc, memory_is_the_drivers_where_registered_memory_would_not_be_right, 0, (int)LENGTH(unfit));
	tcase_add_loop_test(tc, memory_that_cannot_be_registered_is_allocated_by_the_driver, 0, (int)LENGTH(failing));
	tcase_add_test(tc, a_size_that_the_driver_has_refused_to_register_is_not_tried_again);
	tcase_add_test(tc, large_pinned_memory_is_resident_unless_the_driver_allocates_it);
	tcase_add_test(tc, registered_memory_goes_back_to_the_driver_when_a_limit_asks_for_it);
}

int main(int argc, char **argv)
{
	return play_main(argc, argv, &(struct play_tests){"pinned", add}, 1);
}
