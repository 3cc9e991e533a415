/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * The tables behind call sites, tested directly: which stacks count as equal, how long records last, and what a full
 * table does.
 */

#include <check.h>
#include <execinfo.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "shim/trace/alloc_info.h"
#include "shim/trace/location.h"
#include "shim/trace/call_site.h"
#include "shim/trace/stack.h"
#include "tests/suite.h"

enum { N_THREADS = 4, ROUNDS = 2000, FRAMES_OF_ALL = 1 << 20, BLOCKS_OF_ALL = 1 << 20 };

static void switch_on(unsigned depth, unsigned sample)
{
	struct gp_config_stacks stacks = {depth, sample};

	ck_assert_int_eq(gp_alloc_info_switch(&stacks), 0);
}

static uint32_t intern(uintptr_t first, unsigned n)
{
	uintptr_t frames[GP_STACK_MAX];

	for (unsigned i = 0; i < n; i++)
		frames[i] = first + i;
	return gp_site_intern(frames, n);
}

START_TEST(equal_stacks_share_one_call_site)
{
	struct gp_site_info info;
	uint32_t site;

	ck_assert_uint_eq(intern(100, 4), 0);
	ck_assert_int_eq(gp_site_init(), 0);
	ck_assert_int_eq(gp_site_init(), 0);
	site = intern(100, 4);
	ck_assert_uint_ne(site, 0);
	ck_assert_uint_eq(intern(100, 4), site);
	ck_assert_uint_ne(intern(100, 3), site);
	ck_assert_uint_ne(intern(101, 4), site);
	ck_assert_uint_eq(gp_sites_count(), 3);
	gp_site_count(site, 7);
	gp_site_count(site, 5);
	gp_site_info(site, &info);
	ck_assert_uint_eq(info.n_frames, 4);
	ck_assert_uint_eq(info.frames[3], 103);
	ck_assert_uint_eq(info.n_allocs, 2);
	ck_assert_uint_eq(info.bytes, 12);
}
END_TEST

static const struct {
	unsigned n_frames, most;
} depths[] = {{1, GP_SITES_MAX}, {GP_STACK_MAX, FRAMES_OF_ALL / GP_STACK_MAX}};

START_TEST(stacks_beyond_a_full_site_table_are_counted_and_earlier_sites_stay)
{
	unsigned n = depths[_i].n_frames, most = depths[_i].most;

	ck_assert_int_eq(gp_site_init(), 0);
	for (unsigned i = 0; i < most; i++)
		ck_assert_uint_eq(intern(1000 + 64 * i, n), i + 1);
	ck_assert_uint_eq(gp_sites_dropped(), 0);
	for (unsigned i = 0; i < 10; i++)
		ck_assert_uint_eq(intern(1 + 64 * i, n), 0);
	ck_assert_uint_eq(gp_sites_dropped(), 10);
	ck_assert_uint_eq(intern(1000, n), 1);
	ck_assert_uint_eq(gp_sites_count(), most);
}
END_TEST

START_TEST(code_locations_belong_to_their_function_until_the_table_is_full)
{
	struct gp_function one = {{1, 2, 3, 4, 5}}, other = {{1, 2, 3, 4, 6}};
	struct gp_location_info info;
	uint32_t function;
	uintptr_t location;

	ck_assert_int_eq(gp_location_init(), 0);
	ck_assert_uint_eq(gp_function_find(&one), 0);
	function = gp_function_add(&one, "a/b.py", "f");
	ck_assert_uint_ne(function, 0);
	ck_assert_uint_eq(gp_function_find(&one), function);
	ck_assert_uint_eq(gp_function_add(&one, "x", "x"), function);
	ck_assert_uint_eq(gp_function_find(&other), 0);
	ck_assert_uint_ne(gp_function_add(&other, "c.py", "g"), function);
	ck_assert_uint_eq(gp_location_find(function, 0), 0);
	location = gp_location_add(function, 0, 12);
	ck_assert(gp_location_is(location) && !gp_location_is(location & ~GP_LOCATION_BIT));
	ck_assert_uint_eq(gp_location_find(function, 0), location);
	ck_assert_uint_eq(gp_location_add(function, 0, 13), location);
	ck_assert_uint_eq(gp_location_find(function + 1, 0), 0);
	gp_location_info(location, &info);
	ck_assert_str_eq(info.file, "a/b.py");
	ck_assert_str_eq(info.name, "f");
	ck_assert_uint_eq(info.line, 12);
	for (uint32_t i = 1; i < GP_LOCATIONS_MAX; i++)
		ck_assert_uint_eq(gp_location_number(gp_location_add(function, i, i)), i + 1);
	ck_assert_uint_eq(gp_location_add(function, GP_LOCATIONS_MAX, 1), 0);
	ck_assert_uint_eq(gp_location_find(function, 0), location);
}
END_TEST

START_TEST(functions_beyond_a_full_table_get_no_number)
{
	struct gp_function function = {{0}};
	char name[GP_LOCATION_TEXT_MAX];
	struct gp_location_info info;
	unsigned n = 0;

	ck_assert_int_eq(gp_location_init(), 0);
	memset(name, 'n', sizeof(name) - 1);
	name[sizeof(name) - 1] = '\0';
	do
		function.identity[0] = ++n;
	while (gp_function_add(&function, name, name));
	ck_assert_uint_gt(n, 10000);
	ck_assert_uint_lt(n, 100000);
	/* The last functions were added without their names, for which there was no room. */
	function.identity[0] = n - 1;
	gp_location_info(gp_location_add(gp_function_find(&function), 0, 1), &info);
	ck_assert_str_eq(info.name, "");
}
END_TEST

static void *intern_many(void *arg)
{
	uint32_t *sites = arg;

	for (unsigned i = 0; i < ROUNDS; i++)
		sites[i] = intern(i, 5);
	return NULL;
}

START_TEST(threads_get_the_same_call_site_for_equal_stacks)
{
	static uint32_t sites[N_THREADS][ROUNDS];
	pthread_t threads[N_THREADS];

	ck_assert_int_eq(gp_site_init(), 0);
	for (int i = 0; i < N_THREADS; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, intern_many, sites[i]), 0);
	for (int i = 0; i < N_THREADS; i++)
		ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
	ck_assert_uint_eq(gp_sites_count(), ROUNDS);
	for (int i = 1; i < N_THREADS; i++)
		ck_assert_mem_eq(sites[i], sites[0], sizeof(sites[0]));
}
END_TEST

START_TEST(an_allocation_record_lasts_until_its_address_is_allocated_again)
{
	struct gp_alloc_info origin, later;

	gp_alloc_info_note_alloc(512, 100);
	ck_assert(!gp_alloc_info_find(512, &origin));
	switch_on(8, 1);
	gp_alloc_info_note_alloc(512, 100);
	ck_assert(gp_alloc_info_find(512, &origin));
	ck_assert_uint_eq(origin.bytes, 100);
	ck_assert(!origin.is_freed && origin.given && !origin.freed && origin.time_ns);
	ck_assert(!gp_alloc_info_find(1024, &origin));
	gp_alloc_info_note_free(512);
	ck_assert(gp_alloc_info_find(512, &later));
	ck_assert(later.is_freed && later.freed && later.freed != later.given);
	ck_assert_uint_eq(later.given, origin.given);
	ck_assert_uint_ge(later.time_ns, origin.time_ns);
	/* Only the first free counts. */
	gp_alloc_info_note_free(512);
	ck_assert(gp_alloc_info_find(512, &origin));
	ck_assert_uint_eq(origin.freed, later.freed);
	ck_assert_uint_eq(origin.time_ns, later.time_ns);
	gp_alloc_info_note_alloc(512, 300);
	ck_assert(gp_alloc_info_find(512, &origin));
	ck_assert(!origin.is_freed && !origin.freed);
	ck_assert_uint_eq(origin.bytes, 300);
}
END_TEST

START_TEST(switching_stacks_off_keeps_old_allocation_records_and_adds_none)
{
	struct gp_config_stacks off = {0, 1}, now;
	struct gp_alloc_info origin;
	uint64_t since_ns;

	switch_on(8, 3);
	gp_alloc_info_note_alloc(512, GP_MIB);
	gp_alloc_info_note_alloc(1024, GP_MIB);
	ck_assert_int_eq(gp_alloc_info_switch(&off), 0);
	gp_alloc_info_settings(&now, &since_ns);
	ck_assert_uint_eq(now.depth, 0);
	ck_assert_uint_ne(since_ns, 0);
	ck_assert(gp_alloc_info_find(512, &origin));
	ck_assert_uint_ne(origin.given, 0);
	gp_alloc_info_note_free(1024);
	ck_assert(gp_alloc_info_find(1024, &origin));
	ck_assert(origin.is_freed && !origin.freed);
	gp_alloc_info_note_alloc(1024, GP_MIB);
	ck_assert(!gp_alloc_info_find(1024, &origin));
	gp_alloc_info_note_alloc(1536, GP_MIB);
	ck_assert(!gp_alloc_info_find(1536, &origin));
}
END_TEST

START_TEST(a_sample_of_n_records_the_stack_of_every_nth_small_block)
{
	struct gp_alloc_info origin;
	unsigned n = 0;

	switch_on(8, 10);
	for (uint64_t i = 1; i <= 1000; i++)
		gp_alloc_info_note_alloc(512 * i, 64);
	for (uint64_t i = 1; i <= 1000; i++) {
		ck_assert(gp_alloc_info_find(512 * i, &origin));
		n += origin.given != 0;
	}
	ck_assert_uint_eq(n, 100);
}
END_TEST

/* Switches stacks on for tests in which the stacks do not matter. */
static void switch_on_without_stacks(void)
{
	switch_on(1, GP_STACKS_SAMPLE_MAX);
	gp_alloc_info_note_alloc(512, 1);
	gp_alloc_info_note_free(512);
}

START_TEST(records_of_blocks_freed_long_ago_make_room_for_new_ones)
{
	struct gp_alloc_info origin;

	switch_on_without_stacks();
	for (uint64_t i = 1; i <= 200000; i++) {
		gp_alloc_info_note_alloc(512 * i, 64);
		gp_alloc_info_note_free(512 * i);
	}
	ck_assert(!gp_alloc_info_find(512, &origin));
	ck_assert(gp_alloc_info_find(512 * 200000, &origin));
	ck_assert_uint_eq(gp_alloc_info_dropped(), 0);
}
END_TEST

START_TEST(blocks_beyond_a_full_record_table_are_counted_and_frees_make_room)
{
	struct gp_alloc_info origin;
	uint64_t dropped;

	switch_on_without_stacks();
	for (uint64_t i = 1; i <= BLOCKS_OF_ALL + 1000; i++)
		gp_alloc_info_note_alloc(512 * i, 64);
	dropped = gp_alloc_info_dropped();
	ck_assert_uint_ge(dropped, 1000);
	/* Blocks are spread nearly evenly over the shards. */
	ck_assert_uint_lt(dropped, BLOCKS_OF_ALL / 50);
	for (uint64_t i = 1; i <= BLOCKS_OF_ALL / 2; i++)
		gp_alloc_info_note_free(512 * i);
	for (uint64_t i = 1; i <= BLOCKS_OF_ALL / 4; i++)
		gp_alloc_info_note_alloc(512 * (BLOCKS_OF_ALL * 2 + i), 64);
	ck_assert_uint_eq(gp_alloc_info_dropped(), dropped);
	ck_assert(gp_alloc_info_find(512 * (BLOCKS_OF_ALL * 2 + 1), &origin));
	ck_assert(!origin.is_freed);
}
END_TEST

static void *give_and_free(void *arg)
{
	uint64_t first = (uint64_t)(uintptr_t)arg;
	struct gp_alloc_info origin;
	uintptr_t wrong = 0;

	for (uint64_t i = 0; i < ROUNDS; i++) {
		uint64_t key = first + 512 * (i % 32);

		gp_alloc_info_note_alloc(key, i + 1);
		wrong += !gp_alloc_info_find(key, &origin) || origin.bytes != i + 1 || origin.is_freed;
		gp_alloc_info_note_free(key);
		wrong += !gp_alloc_info_find(key, &origin) || !origin.is_freed;
	}
	return (void *)wrong;
}

START_TEST(threads_do_not_mix_up_their_allocation_records)
{
	pthread_t threads[N_THREADS];
	void *wrong;

	switch_on(4, 1);
	for (uintptr_t i = 0; i < N_THREADS; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, give_and_free, (void *)((i + 1) << 30)), 0);
	for (int i = 0; i < N_THREADS; i++) {
		ck_assert_int_eq(pthread_join(threads[i], &wrong), 0);
		ck_assert_ptr_null(wrong);
	}
}
END_TEST

__attribute__((noinline, noclone)) static unsigned take_at(unsigned depth, uintptr_t *frames, unsigned max)
{
	unsigned n = depth ? take_at(depth - 1, frames, max) : gp_stack_take(frames, max);

	__asm__ volatile("" : "+r"(n));
	return n;
}

START_TEST(a_stack_has_its_full_depth_up_to_the_requested_limit)
{
	uintptr_t frames[GP_STACK_MAX], again[GP_STACK_MAX];
	unsigned shallow;

	ck_assert_uint_eq(take_at(3, frames, 8), 0);
	ck_assert_int_eq(gp_stack_prepare(), 0);
	ck_assert_uint_eq(take_at(3, frames, 0), 0);
	ck_assert_uint_eq(take_at(30, frames, 8), 8);
	shallow = take_at(3, frames, GP_STACK_MAX);
	ck_assert_uint_gt(shallow, 4);
	ck_assert_uint_eq(take_at(13, again, GP_STACK_MAX), shallow + 10);
	/* The outermost frames are the same except for the line of this test. */
	ck_assert_uint_eq(again[shallow + 9], frames[shallow - 1]);
	for (unsigned i = 0; i < 3; i++) {
		ck_assert_uint_eq(take_at(20, again, GP_STACK_MAX), take_at(20, frames, GP_STACK_MAX));
		ck_assert_mem_eq(again, frames, 20 * sizeof(*frames));
	}
}
END_TEST

/*
 * Functions that call each other in random order. Their frames differ in size, and step_variable has a frame
 * whose size is not a constant.
 */
struct descent {
	unsigned seed, left, n, n_wanted;
	uintptr_t frames[GP_STACK_MAX];
	void *wanted[2 * GP_STACK_MAX];
};

static void descend(struct descent *d);

#define STEP(name, size)                                                       \
	static __attribute__((noinline, noclone)) void name(struct descent *d) \
	{                                                                      \
		char room[size];                                               \
                                                                               \
		__asm__ volatile("" : : "r"(room) : "memory");                 \
		descend(d);                                                    \
		__asm__ volatile("" : : "r"(room) : "memory");                 \
	}
STEP(step_8, 8)
STEP(step_8_again, 8)
STEP(step_100, 100)
STEP(step_4000, 4000)

static __attribute__((noinline, noclone)) void step_variable(struct descent *d)
{
	char *room = __builtin_alloca(16 + d->seed % 7 * 16);

	__asm__ volatile("" : : "r"(room) : "memory");
	descend(d);
	__asm__ volatile("" : : "r"(room) : "memory");
}

static __attribute__((noinline, noclone)) void arrive(struct descent *d)
{
	d->n = gp_stack_take(d->frames, GP_STACK_MAX);
	d->n_wanted = (unsigned)backtrace(d->wanted, 2 * GP_STACK_MAX);
}

static __attribute__((noinline, noclone)) void descend(struct descent *d)
{
	static void (*const steps[])(struct descent *) = {step_8, step_8_again, step_100, step_4000, step_variable};

	d->seed = d->seed * 1103515245u + 12345u;
	if (d->left-- == 0)
		arrive(d);
	else
		steps[(d->seed >> 16) % 5](d);
	__asm__ volatile("");
}

/* A stack that was walked once is recognised by its contents, while the C library's backtrace walks each time. */
static void check_descents(unsigned n, unsigned seeds)
{
	static struct descent d;

	for (unsigned i = 0; i < n; i++) {
		d = (struct descent){.seed = i % seeds, .left = i % 12};
		descend(&d);
		ck_assert_uint_gt(d.n, 5);
		ck_assert_uint_lt(d.n, GP_STACK_MAX);
		ck_assert_uint_gt(d.n_wanted, 5);
		/*
		 * Compare from the outermost frame on, and leave out the innermost ones: the library's
		 * own, and the line of the call.
		 */
		for (unsigned k = 1; k < d.n - 1; k++)
			ck_assert_uint_eq(d.frames[d.n - k], (uintptr_t)d.wanted[d.n_wanted - k]);
	}
}

START_TEST(repeated_stacks_equal_those_that_backtrace_finds)
{
	ck_assert_int_eq(gp_stack_prepare(), 0);
	check_descents(3000, 3000);
	check_descents(3000, 10);
	check_descents(3000, 1);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("call_sites");
	TCase *tc = tcase_create("call_sites");

	tcase_add_test(tc, equal_stacks_share_one_call_site);
	tcase_add_loop_test(tc, stacks_beyond_a_full_site_table_are_counted_and_earlier_sites_stay, 0, 2);
	tcase_add_test(tc, code_locations_belong_to_their_function_until_the_table_is_full);
	tcase_add_test(tc, functions_beyond_a_full_table_get_no_number);
	tcase_add_test(tc, threads_get_the_same_call_site_for_equal_stacks);
	tcase_add_test(tc, an_allocation_record_lasts_until_its_address_is_allocated_again);
	tcase_add_test(tc, switching_stacks_off_keeps_old_allocation_records_and_adds_none);
	tcase_add_test(tc, a_sample_of_n_records_the_stack_of_every_nth_small_block);
	tcase_add_test(tc, records_of_blocks_freed_long_ago_make_room_for_new_ones);
	tcase_add_test(tc, blocks_beyond_a_full_record_table_are_counted_and_frees_make_room);
	tcase_add_test(tc, threads_do_not_mix_up_their_allocation_records);
	tcase_add_test(tc, a_stack_has_its_full_depth_up_to_the_requested_limit);
	tcase_add_test(tc, repeated_stacks_equal_those_that_backtrace_finds);
	suite_add_tcase(suite, tc);
	return suite_run(suite);
}
