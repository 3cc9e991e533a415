/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* The retry rounds of an allocation for which memory has run out. */

#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>

#include "pool/tuning.h"
#include "pool/pool.h"
#include "pool/tuning.h"
#include "pool_fixture.h"
#include "tests/suite.h"

enum { SOME_ERROR = 719 };

static void setup(void)
{
	fixture_setup(GP_KIND_SIMPLE);
}

static uint64_t count_of(enum gp_round round)
{
	return fixture_stats().rounds[round].count;
}

static uint64_t yield_of(enum gp_round round)
{
	return fixture_stats().rounds[round].gained_bytes;
}

/* True for the rounds that only wait, which the options or the backend forbid by default. */
static bool is_optional(int round)
{
	return round == GP_ROUND_wait || round == GP_ROUND_neighbours || round == GP_ROUND_sleepers ||
	       round == GP_ROUND_spill;
}

START_TEST(the_retry_rounds_are_numbered_in_the_order_in_which_they_run)
{
	for (int i = 1; i < GP_N_ROUNDS; i++)
		ck_assert_uint_ge(gp_round_number((enum gp_round)i), gp_round_number((enum gp_round)(i - 1)));
	ck_assert_str_eq(gp_round_name(GP_ROUND_settle), "settle");
	ck_assert_str_eq(gp_round_name(GP_ROUND_fail), "fail");
}
END_TEST

START_TEST(the_smallest_cached_segment_that_covers_the_shortage_is_released)
{
	uint64_t small = fixture_alloc(20 * GP_MIB), large = fixture_alloc(120 * GP_MIB);
	uint64_t fit = fixture_alloc(100 * GP_MIB);

	fixture_free_as(small, GP_FREE_SYNCED);
	fixture_free_as(large, GP_FREE_SYNCED);
	fixture_free_as(fit, GP_FREE_SYNCED);
	fixture_alloc(80 * GP_MIB);
	ck_assert_uint_eq(count_of(GP_ROUND_enough), 1);
	ck_assert_uint_eq(yield_of(GP_ROUND_enough), 100 * GP_MIB);
	ck_assert_uint_eq(count_of(GP_ROUND_all), 0);
	ck_assert_uint_eq(fixture_stats().cached_bytes, 140 * GP_MIB);
}
END_TEST

START_TEST(least_recently_used_segments_are_released_if_no_single_one_is_enough)
{
	uint64_t addrs[5];

	for (int i = 0; i < 5; i++)
		addrs[i] = fixture_alloc((46 + 2 * (uint64_t)i) * GP_MIB);
	for (int i = 0; i < 5; i++)
		fixture_free(addrs[i]);
	fixture_alloc(140 * GP_MIB);
	ck_assert_uint_eq(yield_of(GP_ROUND_enough), (46 + 48 + 50) * GP_MIB);
	ck_assert_uint_eq(fixture_stats().cached_bytes, (52 + 54) * GP_MIB);
}
END_TEST

START_TEST(under_a_limit_only_the_smallest_sufficient_segment_is_released)
{
	uint64_t a, b;

	gp_budget_init(&px.budget, 100 * GP_MIB);
	a = fixture_alloc(60 * GP_MIB);
	b = fixture_alloc(20 * GP_MIB);
	fixture_free_as(a, GP_FREE_SYNCED);
	fixture_free_as(b, GP_FREE_SYNCED);
	/* 10 MiB are missing, so the smaller segment is enough. */
	fixture_alloc(30 * GP_MIB);
	ck_assert_uint_eq(yield_of(GP_ROUND_enough), 20 * GP_MIB);
	ck_assert_uint_eq(fixture_stats().cached_bytes, 60 * GP_MIB);
}
END_TEST

START_TEST(the_drivers_own_cache_is_trimmed_when_memory_runs_out)
{
	px.fake.outside = px.fake.trim_yields = 200 * GP_MIB;
	fixture_alloc(100 * GP_MIB);
	ck_assert_uint_eq(count_of(GP_ROUND_all), 1);
	ck_assert_uint_eq(count_of(GP_ROUND_fences), 0);
}
END_TEST

START_TEST(other_contexts_are_asked_before_other_processes)
{
	px.fake.outside = 200 * GP_MIB;
	px.fake.contexts_yield = px.fake.processes_yield = 100 * GP_MIB;
	fixture_alloc(100 * GP_MIB);
	ck_assert_uint_eq(yield_of(GP_ROUND_contexts), 100 * GP_MIB);
	ck_assert_uint_eq(count_of(GP_ROUND_processes), 0);
	fixture_alloc(100 * GP_MIB);
	ck_assert_uint_eq(yield_of(GP_ROUND_processes), 100 * GP_MIB);
	ck_assert_uint_eq(count_of(GP_ROUND_fail), 0);
}
END_TEST

START_TEST(other_processes_are_not_asked_if_a_limit_refuses_the_request)
{
	uint64_t unused;

	gp_budget_init(&px.budget, 100 * GP_MIB);
	fixture_alloc(60 * GP_MIB);
	ck_assert_int_eq(fixture_try(50 * GP_MIB, &unused), -ENOMEM);
	ck_assert_uint_eq(fake_calls(&px.fake, FAKE_ASK_CONTEXTS), 1);
	ck_assert_uint_eq(fake_calls(&px.fake, FAKE_ASK_PROCESSES), 0);
}
END_TEST

/* A group of which other members hold `others`. */
struct fake_group {
	struct gp_budget_group hook;
	_Atomic uint64_t own, others;
	uint64_t limit;
};

static bool charge_group(struct gp_budget_group *hook, uint64_t bytes)
{
	struct fake_group *group = (struct fake_group *)hook;

	if (atomic_load(&group->own) + atomic_load(&group->others) + bytes > group->limit)
		return false;
	atomic_fetch_add(&group->own, bytes);
	return true;
}

static void uncharge_group(struct gp_budget_group *hook, uint64_t bytes)
{
	atomic_fetch_sub(&((struct fake_group *)hook)->own, bytes);
}

static uint64_t left_in_group(struct gp_budget_group *hook)
{
	const struct fake_group *group = (struct fake_group *)hook;

	return group->limit - atomic_load(&group->own) - atomic_load(&group->others);
}

static struct fake_group make_group(uint64_t limit, uint64_t others)
{
	return (struct fake_group){
		.hook = {charge_group, uncharge_group, left_in_group}, .limit = limit, .others = others};
}

START_TEST(members_of_a_group_are_asked_again_while_they_give_too_little)
{
	static struct fake_group group;

	group = make_group(100 * GP_MIB, 90 * GP_MIB);
	px.budget.group = &group.hook;
	px.fake.group_held = &group.others;
	px.fake.group_yields[0] = 10 * GP_MIB;
	px.fake.group_yields[2] = 40 * GP_MIB;
	fixture_alloc(50 * GP_MIB);
	ck_assert_uint_eq(fake_calls(&px.fake, FAKE_ASK_GROUP), 3);
	ck_assert_uint_eq(fake_calls(&px.fake, FAKE_ASK_PROCESSES), 0);
	ck_assert_uint_eq(yield_of(GP_ROUND_processes), 50 * GP_MIB);
	ck_assert_uint_eq(atomic_load(&group.own), 50 * GP_MIB);
}
END_TEST

START_TEST(a_request_fails_once_the_members_of_its_group_give_nothing_any_more)
{
	static struct fake_group group;
	uint64_t unused;

	group = make_group(100 * GP_MIB, 90 * GP_MIB);
	px.budget.group = &group.hook;
	px.fake.group_held = &group.others;
	px.fake.group_yields[0] = 10 * GP_MIB;
	ck_assert_int_eq(fixture_try(50 * GP_MIB, &unused), -ENOMEM);
	ck_assert_uint_eq(fake_calls(&px.fake, FAKE_ASK_GROUP), 1 + GP_GROUP_ASKS_IDLE);
	ck_assert_uint_eq(atomic_load(&group.own), 0);
	ck_assert_uint_eq(atomic_load(&px.budget.charged_bytes), 0);
}
END_TEST

/* Returns how often the members are asked for a request that they cannot help. */
static unsigned asks_of_a_failure(void)
{
	uint64_t unused;

	(void)fake_calls(&px.fake, FAKE_ASK_GROUP);
	ck_assert_int_eq(fixture_try(50 * GP_MIB, &unused), -ENOMEM);
	return fake_calls(&px.fake, FAKE_ASK_GROUP);
}

START_TEST(members_that_gave_nothing_many_times_are_asked_once)
{
	static struct fake_group group;

	atomic_store(&px.fake.now_ns, 10 * GP_GROUP_FUTILE_NS);
	group = make_group(100 * GP_MIB, 90 * GP_MIB);
	px.budget.group = &group.hook;
	px.fake.group_held = &group.others;
	for (int i = 0; i < GP_GROUP_FUTILE_MAX; i++)
		ck_assert_uint_eq(asks_of_a_failure(), GP_GROUP_ASKS_IDLE);
	for (int i = 0; i < 3; i++)
		ck_assert_uint_eq(asks_of_a_failure(), 1);
	/* Memory that a member gives to the only question is used. */
	px.fake.n_group_asks = 0;
	px.fake.group_yields[0] = 40 * GP_MIB;
	fixture_alloc(50 * GP_MIB);
	/* After that, and after some time, members are asked as often as before. */
	px.fake.n_group_asks = 4;
	for (int i = 0; i < GP_GROUP_FUTILE_MAX; i++)
		ck_assert_uint_eq(asks_of_a_failure(), GP_GROUP_ASKS_IDLE);
	ck_assert_uint_eq(asks_of_a_failure(), 1);
	atomic_fetch_add(&px.fake.now_ns, GP_GROUP_FUTILE_NS + 1);
	ck_assert_uint_eq(asks_of_a_failure(), GP_GROUP_ASKS_IDLE);
}
END_TEST

START_TEST(a_group_is_not_asked_if_the_limit_of_the_process_refuses_the_request)
{
	static struct fake_group group;
	uint64_t unused;

	group = make_group(100 * GP_MIB, 90 * GP_MIB);
	gp_budget_init(&px.budget, 40 * GP_MIB);
	px.budget.group = &group.hook;
	ck_assert_int_eq(fixture_try(50 * GP_MIB, &unused), -ENOMEM);
	ck_assert_uint_eq(fake_calls(&px.fake, FAKE_ASK_GROUP), 0);
}
END_TEST

/* The kind that cuts segments takes the granules that the driver takes anyway, so that the sum is the driver's. */
START_TEST(a_segment_in_a_group_consists_of_whole_granules_even_when_the_group_is_short)
{
	static struct fake_group group;
	uint64_t unused;

	fixture_teardown();
	fixture_setup(GP_KIND_SPLIT);
	group = make_group(100 * GP_MIB, 92 * GP_MIB);
	px.budget.group = &group.hook;
	fixture_alloc(7 * GP_MIB);
	ck_assert_uint_eq(atomic_load(&group.own), 8 * GP_MIB);
	group = make_group(100 * GP_MIB, 93 * GP_MIB - 8 * GP_MIB);
	atomic_store(&group.own, 8 * GP_MIB);
	ck_assert_int_eq(fixture_try(7 * GP_MIB, &unused), -ENOMEM);
}
END_TEST

START_TEST(an_allocation_waits_for_pending_memory_rather_than_failing)
{
	uint64_t addr = fixture_alloc(200 * GP_MIB);

	px.fake.pause_completes = 1;
	for (int i = 0; i < 50; i++)
		fixture_work();
	fixture_free(addr);
	gp_pool_require_completion(fixture_pool());
	px.options.completion_only = true;
	fixture_alloc(100 * GP_MIB);
	ck_assert_uint_eq(count_of(GP_ROUND_fences), 1);
	ck_assert_uint_eq(fixture_stats().fence_waits, 1);
	ck_assert_uint_eq(count_of(GP_ROUND_fail), 0);
}
END_TEST

START_TEST(pending_blocks_that_merge_into_a_fit_are_reused_without_the_driver)
{
	uint64_t addrs[4];

	fixture_teardown();
	fixture_setup(GP_KIND_SPLIT);
	px.options.completion_only = true;
	fixture_alloc(180 * GP_MIB);
	for (int i = 0; i < 4; i++)
		addrs[i] = fixture_alloc(10 * GP_MIB);
	for (int i = 0; i < 4; i++) {
		fixture_work();
		fixture_free(addrs[i]);
	}
	fake_calls(&px.fake, FAKE_RELEASE_BEGIN);
	fixture_alloc(30 * GP_MIB);
	ck_assert_uint_eq(fake_calls(&px.fake, FAKE_RELEASE_BEGIN), 0);
	ck_assert_uint_eq(count_of(GP_ROUND_fail), 0);
}
END_TEST

START_TEST(an_allocation_waits_for_an_unfenced_block_for_a_bounded_time)
{
	uint64_t addr = fixture_alloc(200 * GP_MIB), unused;

	fixture_work(); /* this work never completes */
	fixture_free_as(addr, GP_FREE_UNFENCED);
	ck_assert_int_eq(fixture_try(100 * GP_MIB, &unused), -ENOMEM);
	ck_assert_uint_eq(atomic_load(&px.fake.completed), 0);
	ck_assert_uint_ge(fixture_stats().rounds[GP_ROUND_fences].ns, 50000000);
	ck_assert_uint_le(fixture_stats().rounds[GP_ROUND_fences].ns, 200000000);
	fake_complete_all(&px.fake);
	fixture_alloc(100 * GP_MIB);
}
END_TEST

START_TEST(an_allocation_does_not_wait_for_work_that_no_free_would_wait_for)
{
	uint64_t addr = fixture_alloc(200 * GP_MIB);

	fixture_work();
	fixture_free(addr);
	/* A kernel that spins until this thread stops it. */
	fixture_work();
	fixture_free_as(fixture_alloc(GP_KIB), GP_FREE_UNFENCED);
	fixture_alloc(GP_KIB);
	fixture_alloc(100 * GP_MIB);
	ck_assert_uint_le(atomic_load(&px.fake.completed), 1);
}
END_TEST

static int alloc_explained(uint64_t bytes, struct gp_failure *ret_failure)
{
	struct gp_alloc_options options = {.ret_failure = ret_failure};
	uint64_t unused;

	return gp_pool_alloc_with(px.pool, bytes, &options, &unused);
}

START_TEST(a_request_that_cannot_be_served_runs_every_round_once)
{
	uint64_t addr = fixture_alloc(100 * GP_MIB);
	struct gp_failure failure;
	struct gp_stats stats;

	ck_assert_int_eq(alloc_explained(200 * GP_MIB, &failure), -ENOMEM);
	stats = fixture_stats();
	for (int i = 0; i < GP_N_ROUNDS; i++)
		ck_assert_uint_eq(stats.rounds[i].count, !is_optional(i));
	ck_assert_uint_eq(stats.ooms, 1);
	ck_assert_uint_eq(stats.used_bytes, 100 * GP_MIB);
	ck_assert(fixture_info(addr).is_used);
	ck_assert_uint_eq(failure.bytes, 200 * GP_MIB);
	ck_assert(!failure.is_hopeless);
	for (int i = 0; i < GP_N_ROUNDS; i++)
		ck_assert_uint_eq(failure.rounds[i].count, !is_optional(i));
	fixture_alloc(100 * GP_MIB);
}
END_TEST

START_TEST(the_report_of_a_failure_contains_only_its_own_rounds)
{
	uint64_t small = fixture_alloc(20 * GP_MIB);
	struct gp_failure failure;

	ck_assert_int_eq(alloc_explained(250 * GP_MIB, &failure), -ENOMEM);
	fixture_free_as(small, GP_FREE_SYNCED);
	fixture_alloc(100 * GP_MIB);
	small = fixture_alloc(30 * GP_MIB);
	fixture_free_as(small, GP_FREE_SYNCED);
	ck_assert_int_eq(alloc_explained(200 * GP_MIB, &failure), -ENOMEM);
	ck_assert_uint_eq(failure.rounds[GP_ROUND_settle].count, 1);
	ck_assert_uint_gt(failure.rounds[GP_ROUND_enough].gained_bytes, 0);
	ck_assert_int_eq(alloc_explained(FIXTURE_CAPACITY + 1, &failure), -ENOMEM);
	ck_assert(failure.is_hopeless);
	ck_assert_uint_eq(failure.rounds[GP_ROUND_settle].count, 0);
}
END_TEST

START_TEST(two_requests_that_fail_one_after_the_other_keep_their_own_failures)
{
	struct gp_failure first, second;

	fixture_alloc(100 * GP_MIB);
	ck_assert_int_eq(alloc_explained(200 * GP_MIB, &first), -ENOMEM);
	ck_assert_int_eq(alloc_explained(FIXTURE_CAPACITY + 1, &second), -ENOMEM);
	ck_assert_uint_eq(first.bytes, 200 * GP_MIB);
	ck_assert(!first.is_hopeless);
	ck_assert(second.is_hopeless);
}
END_TEST

/* The request of a second thread, which comes while the first thread runs its rounds. */
static const struct request {
	uint64_t bytes;
	bool is_hopeless; /* then it needs no turn in the rounds, and ends before the first request */
} requests[] = {{FIXTURE_CAPACITY + 1, true}, {150 * GP_MIB, false}};

static struct second_request {
	pthread_t thread;
	int result;
	struct gp_failure failure;
} second;

static void *make_second_request(void *arg)
{
	const struct request *request = arg;

	second.result = alloc_explained(request->bytes, &second.failure);
	return NULL;
}

static void start_second_request(struct fake *fake, enum fake_call call)
{
	const struct request *request = fake->hook_arg;

	if (call != FAKE_TRIM)
		return;
	fake->hook = NULL;
	ck_assert_int_eq(pthread_create(&second.thread, NULL, make_second_request, fake->hook_arg), 0);
	if (request->is_hopeless)
		ck_assert_int_eq(pthread_join(second.thread, NULL), 0);
}

START_TEST(two_threads_that_run_out_of_memory_at_once_get_their_own_failures)
{
	struct request request = requests[_i];
	struct gp_failure failure;

	fixture_alloc(200 * GP_MIB);
	px.fake.hook_arg = &request;
	px.fake.hook = start_second_request;
	ck_assert_int_eq(alloc_explained(100 * GP_MIB, &failure), -ENOMEM);
	if (!request.is_hopeless)
		ck_assert_int_eq(pthread_join(second.thread, NULL), 0);
	ck_assert_int_eq(second.result, -ENOMEM);
	ck_assert_uint_eq(failure.bytes, 100 * GP_MIB);
	ck_assert_uint_eq(second.failure.bytes, gp_round_up(request.bytes, px.options.granule));
	ck_assert(!failure.is_hopeless);
	ck_assert(second.failure.is_hopeless == request.is_hopeless);
	for (int i = 0; i < GP_N_ROUNDS; i++) {
		ck_assert_uint_eq(failure.rounds[i].count, !is_optional(i));
		ck_assert_uint_eq(second.failure.rounds[i].count, !is_optional(i) && !request.is_hopeless);
	}
}
END_TEST

START_TEST(each_step_counts_the_requests_that_it_serves)
{
	struct gp_alloc_options hits_only = {.end = GP_STEP_gpuwait};
	uint64_t addr = fixture_alloc(20 * GP_MIB), unused;

	ck_assert_uint_eq(fixture_stats().steps[GP_STEP_grow].count, 1);
	fixture_free_as(addr, GP_FREE_SYNCED);
	fixture_alloc(20 * GP_MIB);
	ck_assert_uint_eq(fixture_stats().steps[GP_STEP_pool].count, 1);
	ck_assert_int_eq(gp_pool_alloc_with(px.pool, 100 * GP_MIB, &hits_only, &unused), -ENOENT);
	ck_assert_uint_eq(fixture_stats().misses, 1);
	ck_assert_uint_eq(fixture_stats().steps[GP_STEP_pool].ns, 0);
}
END_TEST

START_TEST(a_request_that_begins_at_a_later_step_skips_those_before)
{
	struct gp_alloc_options later = {.first = GP_STEP_grow};
	uint64_t addr = fixture_alloc(20 * GP_MIB), other;

	fixture_free_as(addr, GP_FREE_SYNCED);
	ck_assert_int_eq(gp_pool_alloc_with(px.pool, 20 * GP_MIB, &later, &other), 0);
	ck_assert_uint_ne(addr, other);
	ck_assert_uint_eq(fixture_stats().misses, 2);
}
END_TEST

START_TEST(an_allocation_inside_the_limit_empties_the_cache_before_it_fails)
{
	uint64_t addr = fixture_alloc(100 * GP_MIB), unused;

	fixture_free_as(addr, GP_FREE_SYNCED);
	px.fake.outside = 100 * GP_MIB;
	ck_assert_int_eq(fixture_try(200 * GP_MIB, &unused), -ENOMEM);
	ck_assert_uint_eq(fixture_stats().total_bytes, 0);
	ck_assert_uint_eq(px.fake.reserved_bytes, 0);
}
END_TEST

/* Plays another thread, which frees while the allocation waits. */
static void free_during_pause(struct fake *fake, enum fake_call call)
{
	uint64_t *addr = fake->hook_arg;

	if (call != FAKE_PAUSE || !*addr)
		return;
	gp_pool_free(&px.map, *addr, GP_FREE_SYNCED);
	*addr = 0;
}

START_TEST(a_block_that_another_thread_frees_serves_a_waiting_allocation)
{
	uint64_t held;

	px.options.oom_wait_ns = 500000000;
	held = fixture_alloc(200 * GP_MIB);
	px.fake.hook = free_during_pause;
	px.fake.hook_arg = &held;
	fixture_alloc(100 * GP_MIB);
	ck_assert_uint_eq(count_of(GP_ROUND_wait), 1);
	ck_assert_uint_lt(fixture_stats().rounds[GP_ROUND_wait].ns, 100000000);
	px.fake.hook = NULL;
}
END_TEST

START_TEST(the_wait_for_other_threads_ends_at_the_configured_time)
{
	uint64_t unused;

	px.options.oom_wait_ns = 50000000;
	fixture_alloc(200 * GP_MIB);
	ck_assert_int_eq(fixture_try(100 * GP_MIB, &unused), -ENOMEM);
	ck_assert_uint_ge(fixture_stats().rounds[GP_ROUND_wait].ns, 50000000);
	ck_assert_uint_le(fixture_stats().rounds[GP_ROUND_wait].ns, 52000000);
}
END_TEST

START_TEST(memory_that_another_process_frees_serves_an_allocation_that_waits_for_it)
{
	px.fake.outside = 200 * GP_MIB;
	px.fake.wait_ns = 2000000000;
	px.fake.wait_pauses = 5;
	px.fake.wait_yields = 100 * GP_MIB;
	fixture_alloc(100 * GP_MIB);
	ck_assert_uint_eq(count_of(GP_ROUND_neighbours), 1);
	ck_assert_uint_eq(count_of(GP_ROUND_fail), 0);
	ck_assert_uint_eq(px.fake.waits_ended, 1);
	ck_assert_uint_eq(px.fake.waits_served, 1);
	ck_assert_uint_eq(px.fake.waited_ns, 5000000);
	/* The driver is not asked while it has nothing more. */
	ck_assert_uint_le(fake_calls(&px.fake, FAKE_RESERVE), 3);
}
END_TEST

START_TEST(memory_of_a_process_that_falls_asleep_serves_an_allocation_before_the_waits_for_others)
{
	px.fake.outside = 200 * GP_MIB;
	px.fake.sleepers_ns = 2000000000;
	px.fake.wait_ns = 2000000000;
	px.fake.wait_pauses = 5;
	px.fake.wait_yields = 100 * GP_MIB;
	fixture_alloc(100 * GP_MIB);
	ck_assert_uint_eq(count_of(GP_ROUND_sleepers), 1);
	ck_assert_uint_ge(yield_of(GP_ROUND_sleepers), 100 * GP_MIB);
	ck_assert_uint_eq(count_of(GP_ROUND_neighbours), 0);
	ck_assert_uint_eq(px.fake.waits_begun, 0);
	ck_assert_uint_eq(px.fake.waits_ended, 1);
	ck_assert_uint_eq(px.fake.waits_served, 1);
}
END_TEST

START_TEST(no_process_is_asked_to_sleep_for_an_allocation_that_the_limit_refuses)
{
	uint64_t unused;

	px.fake.sleepers_ns = 50000000;
	fixture_alloc(100 * GP_MIB);
	atomic_store(&px.budget.limit_bytes, 150 * GP_MIB);
	ck_assert_int_eq(fixture_try(100 * GP_MIB, &unused), -ENOMEM);
	ck_assert_uint_eq(count_of(GP_ROUND_sleepers), 0);
	ck_assert_uint_eq(px.fake.waits_ended, 0);
}
END_TEST

static const struct {
	unsigned pauses;
	uint64_t waited_ns;
} ends[] = {{0, 50000000}, {7, 7000000}};

START_TEST(a_failed_wait_for_other_processes_ends_in_time_or_when_the_backend_ends_it)
{
	uint64_t unused;

	px.fake.outside = 200 * GP_MIB;
	px.fake.wait_ns = 50000000;
	px.fake.wait_pauses = ends[_i].pauses;
	ck_assert_int_eq(fixture_try(100 * GP_MIB, &unused), -ENOMEM);
	ck_assert_uint_eq(px.fake.waits_ended, 1);
	ck_assert_uint_eq(px.fake.waits_served, 0);
	ck_assert_uint_eq(px.fake.waited_ns, ends[_i].waited_ns);
	ck_assert_uint_eq(count_of(GP_ROUND_fail), 1);
}
END_TEST

START_TEST(an_allocation_that_the_limit_refuses_does_not_wait_for_other_processes)
{
	uint64_t unused;

	px.fake.wait_ns = 50000000;
	fixture_alloc(100 * GP_MIB);
	atomic_store(&px.budget.limit_bytes, 150 * GP_MIB);
	ck_assert_int_eq(fixture_try(100 * GP_MIB, &unused), -ENOMEM);
	ck_assert_uint_eq(px.fake.waits_begun, 0);
	ck_assert_uint_eq(count_of(GP_ROUND_neighbours), 0);
}
END_TEST

START_TEST(with_a_configured_wait_an_allocation_does_not_wait_for_other_processes_as_well)
{
	uint64_t unused;

	px.options.oom_wait_ns = 50000000;
	px.fake.outside = 200 * GP_MIB;
	px.fake.wait_ns = 50000000;
	ck_assert_int_eq(fixture_try(100 * GP_MIB, &unused), -ENOMEM);
	ck_assert_uint_eq(px.fake.waits_begun, 0);
	ck_assert_uint_eq(count_of(GP_ROUND_wait), 1);
}
END_TEST

/* Plays another thread, which frees a block or runs out of memory itself while this one waits. */
static void free_during_wait(struct fake *fake, enum fake_call call)
{
	uint64_t *addr = fake->hook_arg;

	if (call != FAKE_WAIT_PAUSE || !*addr)
		return;
	gp_pool_free(&px.map, *addr, GP_FREE_SYNCED);
	*addr = 0;
}

static void fail_during_wait(struct fake *fake, enum fake_call call)
{
	struct gp_failure *failure = fake->hook_arg;

	if (call != FAKE_WAIT_PAUSE || failure->bytes)
		return;
	fake->wait_ns = 0;
	ck_assert_int_eq(alloc_explained(90 * GP_MIB, failure), -ENOMEM);
}

START_TEST(a_block_that_another_thread_frees_serves_an_allocation_that_waits_for_processes)
{
	uint64_t held = fixture_alloc(150 * GP_MIB);

	px.fake.wait_ns = 2000000000;
	px.fake.hook = free_during_wait;
	px.fake.hook_arg = &held;
	fixture_alloc(120 * GP_MIB);
	px.fake.hook = NULL;
	ck_assert_uint_eq(px.fake.waits_served, 1);
}
END_TEST

START_TEST(a_thread_runs_out_of_memory_at_once_while_another_waits_for_processes)
{
	struct gp_failure failure = {0};
	uint64_t unused;

	fixture_alloc(200 * GP_MIB);
	px.fake.wait_ns = 5000000;
	px.fake.hook = fail_during_wait;
	px.fake.hook_arg = &failure;
	ck_assert_int_eq(fixture_try(100 * GP_MIB, &unused), -ENOMEM);
	px.fake.hook = NULL;
	ck_assert_uint_eq(failure.rounds[GP_ROUND_settle].count, 1);
	ck_assert_uint_eq(failure.rounds[GP_ROUND_neighbours].count, 0);
	ck_assert_uint_eq(px.fake.waited_ns, 5000000);
}
END_TEST

/*
 * Plays another thread, which releases memory while this allocation finds none. The allocation sees only that
 * memory has arrived in the driver.
 */
static void release_during_trim(struct fake *fake, enum fake_call call)
{
	uint64_t *addr = fake->hook_arg;

	if (call != FAKE_TRIM || !*addr)
		return;
	gp_pool_free(&px.map, *addr, GP_FREE_SYNCED);
	*addr = 0;
	gp_pool_reclaim(px.pool);
}

START_TEST(memory_that_another_thread_releases_leads_to_a_retry)
{
	uint64_t held = fixture_alloc(200 * GP_MIB);

	px.fake.hook = release_during_trim;
	px.fake.hook_arg = &held;
	fixture_alloc(100 * GP_MIB);
	px.fake.hook = NULL;
	ck_assert_uint_eq(count_of(GP_ROUND_fail), 0);
}
END_TEST

static bool is_refused;

/* The thread is cancelled before it allocates, but may end only afterwards. */
static void *allocate_cancelled(void *unused)
{
	uint64_t addr;

	pthread_cancel(pthread_self());
	is_refused = gp_pool_alloc(px.pool, 100 * GP_MIB, 0, &addr) == -ENOMEM;
	pthread_testcancel();
	return NULL;
}

/* Starts another thread, whose allocation has to wait for its turn. */
static void let_another_wait(struct fake *fake, enum fake_call call)
{
	pthread_t *thread = fake->hook_arg;
	uint64_t n_tried = atomic_load(&fake->n_calls[FAKE_RESERVE]);

	if (call != FAKE_TRIM || *thread)
		return;
	ck_assert_int_eq(pthread_create(thread, NULL, allocate_cancelled, NULL), 0);
	while (atomic_load(&fake->n_calls[FAKE_RESERVE]) == n_tried)
		sched_yield();
	for (unsigned i = 0; i < 1000; i++)
		sched_yield();
}

START_TEST(a_thread_cancelled_while_its_allocation_waits_keeps_no_lock)
{
	uint64_t unused;
	pthread_t thread = 0;
	void *result;

	fixture_alloc(200 * GP_MIB);
	px.fake.hook = let_another_wait;
	px.fake.hook_arg = &thread;
	ck_assert_int_eq(fixture_try(100 * GP_MIB, &unused), -ENOMEM);
	ck_assert_int_eq(pthread_join(thread, &result), 0);
	ck_assert_ptr_eq(result, PTHREAD_CANCELED);
	ck_assert(is_refused);
	px.fake.hook = NULL;
}
END_TEST

/* Plays another thread, which polls the releases before this thread's release has begun. */
static void poll_during_release(struct fake *fake, enum fake_call call)
{
	if (call != FAKE_RELEASE_BEGIN && call != FAKE_RELEASE)
		return;
	fake->hook = NULL;
	gp_pool_reclaim(px.pool);
	fake->hook = poll_during_release;
}

static const struct {
	bool cannot_release_behind;
	int error;
} releases[] = {{false, 0}, {true, 0}, {false, SOME_ERROR}, {true, SOME_ERROR}};

START_TEST(a_released_segment_is_uncounted_once_however_many_threads_poll)
{
	uint64_t addrs[4];

	px.fake.cannot_release_behind = releases[_i].cannot_release_behind;
	for (int i = 0; i < 4; i++)
		addrs[i] = fixture_alloc(20 * GP_MIB);
	for (int i = 0; i < 4; i++)
		fixture_free_as(addrs[i], GP_FREE_SYNCED);
	fake_plan(&px.fake, (struct fake_plan){FAKE_RELEASE, 1, 1, releases[_i].error});
	fake_plan(&px.fake, (struct fake_plan){FAKE_RELEASE_BEGIN, 1, 1, releases[_i].error});
	px.fake.hook = poll_during_release;
	gp_pool_reclaim(fixture_pool());
	px.fake.hook = NULL;
	gp_pool_reclaim(fixture_pool());
	fixture_check();
	ck_assert_uint_eq(fixture_stats().total_bytes, 0);
	ck_assert_uint_eq(atomic_load(&px.budget.charged_bytes), 0);
	ck_assert_uint_eq(fixture_stats().driver_frees, 4);
	ck_assert_uint_eq(fixture_stats().release_errors, releases[_i].error != 0);
}
END_TEST

START_TEST(no_release_that_would_wait_is_made_while_the_context_is_busy)
{
	uint64_t addr, unused;

	px.fake.cannot_release_behind = true;
	addr = fixture_alloc(200 * GP_MIB);
	fixture_free_as(addr, GP_FREE_SYNCED);
	fixture_work(); /* no free follows this work */
	ck_assert_int_eq(fixture_try(100 * GP_MIB, &unused), -ENOMEM);
	ck_assert_uint_eq(fake_calls(&px.fake, FAKE_RELEASE), 0);
	fake_complete_all(&px.fake);
	fixture_alloc(100 * GP_MIB);
	ck_assert_uint_eq(fake_calls(&px.fake, FAKE_RELEASE), 1);
}
END_TEST

/* The most attempts: the first, and one after each round that released memory or saw memory arrive. */
static const struct {
	int error;
	unsigned n_attempts_max;
} errors[] = {
	{-ENOMEM, 4},
	{SOME_ERROR, 1},
};

START_TEST(only_an_out_of_memory_leads_to_another_attempt)
{
	uint64_t addr = fixture_alloc(20 * GP_MIB), unused;
	int r;

	fixture_free_as(addr, GP_FREE_SYNCED);
	fake_calls(&px.fake, FAKE_RESERVE);
	fake_plan(&px.fake, (struct fake_plan){FAKE_RESERVE, 1, 100, errors[_i].error});
	r = fixture_try(100 * GP_MIB, &unused);
	ck_assert_int_eq(r, errors[_i].error);
	ck_assert_uint_le(fake_calls(&px.fake, FAKE_RESERVE), errors[_i].n_attempts_max);
}
END_TEST

START_TEST(an_error_other_than_out_of_memory_ends_the_retry_rounds)
{
	uint64_t addr = fixture_alloc(200 * GP_MIB), unused;

	fixture_free_as(addr, GP_FREE_SYNCED);
	fake_plan(&px.fake, (struct fake_plan){FAKE_RESERVE, 2, 1, SOME_ERROR});
	ck_assert_int_eq(fixture_try(100 * GP_MIB, &unused), SOME_ERROR);
	ck_assert_uint_eq(count_of(GP_ROUND_all), 0);
	ck_assert_uint_eq(fixture_stats().ooms, 0);
}
END_TEST

/* An allocation that is not pooled: it takes bytes of the device. */
struct outsider {
	uint64_t bytes;
	unsigned n_attempts, n_successes;
};

static int take_outside(void *arg)
{
	struct outsider *o = arg;

	o->n_attempts++;
	if (px.fake.reserved_bytes + px.fake.outside + o->bytes > px.fake.capacity)
		return -ENOMEM;
	px.fake.outside += o->bytes;
	o->n_successes++;
	return 0;
}

START_TEST(a_rescue_releases_the_cache_for_an_unpooled_allocation)
{
	struct outsider o = {.bytes = 150 * GP_MIB};
	uint64_t addr = fixture_alloc(200 * GP_MIB);

	fixture_free_as(addr, GP_FREE_SYNCED);
	ck_assert_int_eq(gp_pool_rescue(fixture_pool(), o.bytes, take_outside, &o, NULL), 0);
	ck_assert_uint_eq(o.n_successes, 1);
	ck_assert_uint_eq(fixture_stats().total_bytes, 0);
}
END_TEST

START_TEST(a_rescue_that_cannot_help_returns_the_error_of_the_last_attempt)
{
	struct outsider o = {.bytes = 2 * FIXTURE_CAPACITY};

	ck_assert_int_eq(gp_pool_rescue(fixture_pool(), o.bytes, take_outside, &o, NULL), -ENOMEM);
	ck_assert_uint_eq(o.n_attempts, 1);
	ck_assert_uint_eq(fixture_stats().ooms, 1);
}
END_TEST

START_TEST(a_rescue_that_succeeds_while_it_waits_is_not_attempted_again)
{
	struct outsider o = {.bytes = 150 * GP_MIB};
	uint64_t held;

	px.options.oom_wait_ns = 500000000;
	held = fixture_alloc(200 * GP_MIB);
	px.fake.hook = free_during_pause;
	px.fake.hook_arg = &held;
	ck_assert_int_eq(gp_pool_rescue(fixture_pool(), o.bytes, take_outside, &o, NULL), 0);
	px.fake.hook = NULL;
	ck_assert_uint_eq(o.n_successes, 1);
	ck_assert_uint_eq(px.fake.outside, 150 * GP_MIB);
}
END_TEST

START_TEST(a_capture_during_the_retry_rounds_forbids_fences_but_not_releases)
{
	uint64_t addr = fixture_alloc(200 * GP_MIB);

	fixture_free_as(addr, GP_FREE_SYNCED);
	atomic_store(&px.fake.is_capturing, true);
	fixture_alloc(100 * GP_MIB);
	ck_assert_uint_eq(yield_of(GP_ROUND_enough), 200 * GP_MIB);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("rounds");
	TCase *tc = tcase_create("rounds");

	suite_add_tcase(suite, tc);
	tcase_add_checked_fixture(tc, setup, fixture_teardown);
	tcase_add_test(tc, the_retry_rounds_are_numbered_in_the_order_in_which_they_run);
	tcase_add_test(tc, the_smallest_cached_segment_that_covers_the_shortage_is_released);
	tcase_add_test(tc, least_recently_used_segments_are_released_if_no_single_one_is_enough);
	tcase_add_test(tc, under_a_limit_only_the_smallest_sufficient_segment_is_released);
	tcase_add_test(tc, the_drivers_own_cache_is_trimmed_when_memory_runs_out);
	tcase_add_test(tc, other_contexts_are_asked_before_other_processes);
	tcase_add_test(tc, other_processes_are_not_asked_if_a_limit_refuses_the_request);
	tcase_add_test(tc, members_of_a_group_are_asked_again_while_they_give_too_little);
	tcase_add_test(tc, a_request_fails_once_the_members_of_its_group_give_nothing_any_more);
	tcase_add_test(tc, members_that_gave_nothing_many_times_are_asked_once);
	tcase_add_test(tc, a_group_is_not_asked_if_the_limit_of_the_process_refuses_the_request);
	tcase_add_test(tc, a_segment_in_a_group_consists_of_whole_granules_even_when_the_group_is_short);
	tcase_add_test(tc, an_allocation_waits_for_pending_memory_rather_than_failing);
	tcase_add_test(tc, pending_blocks_that_merge_into_a_fit_are_reused_without_the_driver);
	tcase_add_test(tc, an_allocation_waits_for_an_unfenced_block_for_a_bounded_time);
	tcase_add_test(tc, an_allocation_does_not_wait_for_work_that_no_free_would_wait_for);
	tcase_add_test(tc, a_request_that_cannot_be_served_runs_every_round_once);
	tcase_add_test(tc, the_report_of_a_failure_contains_only_its_own_rounds);
	tcase_add_test(tc, a_request_that_begins_at_a_later_step_skips_those_before);
	tcase_add_test(tc, each_step_counts_the_requests_that_it_serves);
	tcase_add_test(tc, two_requests_that_fail_one_after_the_other_keep_their_own_failures);
	tcase_add_loop_test(tc, two_threads_that_run_out_of_memory_at_once_get_their_own_failures, 0,
		sizeof(requests) / sizeof(*requests));
	tcase_add_test(tc, an_allocation_inside_the_limit_empties_the_cache_before_it_fails);
	tcase_add_test(tc, a_block_that_another_thread_frees_serves_a_waiting_allocation);
	tcase_add_test(tc, the_wait_for_other_threads_ends_at_the_configured_time);
	tcase_add_test(tc, memory_that_another_process_frees_serves_an_allocation_that_waits_for_it);
	tcase_add_test(tc, memory_of_a_process_that_falls_asleep_serves_an_allocation_before_the_waits_for_others);
	tcase_add_test(tc, no_process_is_asked_to_sleep_for_an_allocation_that_the_limit_refuses);
	tcase_add_loop_test(tc, a_failed_wait_for_other_processes_ends_in_time_or_when_the_backend_ends_it, 0,
		sizeof(ends) / sizeof(*ends));
	tcase_add_test(tc, an_allocation_that_the_limit_refuses_does_not_wait_for_other_processes);
	tcase_add_test(tc, with_a_configured_wait_an_allocation_does_not_wait_for_other_processes_as_well);
	tcase_add_test(tc, a_block_that_another_thread_frees_serves_an_allocation_that_waits_for_processes);
	tcase_add_test(tc, a_thread_runs_out_of_memory_at_once_while_another_waits_for_processes);
	tcase_add_test(tc, memory_that_another_thread_releases_leads_to_a_retry);
	tcase_add_test(tc, a_thread_cancelled_while_its_allocation_waits_keeps_no_lock);
	tcase_add_loop_test(tc, a_released_segment_is_uncounted_once_however_many_threads_poll, 0,
		sizeof(releases) / sizeof(*releases));
	tcase_add_test(tc, no_release_that_would_wait_is_made_while_the_context_is_busy);
	tcase_add_loop_test(tc, only_an_out_of_memory_leads_to_another_attempt, 0, sizeof(errors) / sizeof(*errors));
	tcase_add_test(tc, an_error_other_than_out_of_memory_ends_the_retry_rounds);
	tcase_add_test(tc, a_rescue_releases_the_cache_for_an_unpooled_allocation);
	tcase_add_test(tc, a_rescue_that_cannot_help_returns_the_error_of_the_last_attempt);
	tcase_add_test(tc, a_rescue_that_succeeds_while_it_waits_is_not_attempted_again);
	tcase_add_test(tc, a_capture_during_the_retry_rounds_forbids_fences_but_not_releases);
	return suite_run(suite);
}
