/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* What an allocation goes through when memory has run out. */

#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>

#include "pool/failure.h"
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
	return fixture_stats().rounds[round].yielded_bytes;
}

START_TEST(the_rounds_are_numbered_in_the_order_in_which_they_run)
{
	for (int i = 1; i < GP_N_ROUNDS; i++)
		ck_assert_uint_ge(
			gp_round_number((enum gp_round)i), gp_round_number((enum gp_round)(i - 1)));
	ck_assert_str_eq(gp_round_name(GP_ROUND_settle), "settle");
	ck_assert_str_eq(gp_round_name(GP_ROUND_fail), "fail");
}
END_TEST

START_TEST(one_cached_piece_that_covers_what_is_missing_is_given_back)
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

START_TEST(else_the_least_recently_used_are_given_back_until_it_is_enough)
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

START_TEST(with_a_limit_only_what_is_over_it_is_given_back)
{
	uint64_t a, b;

	gp_budget_init(&px.budget, 100 * GP_MIB);
	a = fixture_alloc(60 * GP_MIB);
	b = fixture_alloc(20 * GP_MIB);
	fixture_free_as(a, GP_FREE_SYNCED);
	fixture_free_as(b, GP_FREE_SYNCED);
	/* 10 MiB are missing: the smaller one will do. */
	fixture_alloc(30 * GP_MIB);
	ck_assert_uint_eq(yield_of(GP_ROUND_enough), 20 * GP_MIB);
	ck_assert_uint_eq(fixture_stats().cached_bytes, 60 * GP_MIB);
}
END_TEST

START_TEST(what_the_driver_caches_itself_is_trimmed)
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

START_TEST(other_processes_are_not_asked_for_what_a_limit_forbids)
{
	uint64_t unused;

	gp_budget_init(&px.budget, 100 * GP_MIB);
	fixture_alloc(60 * GP_MIB);
	ck_assert_int_eq(fixture_try(50 * GP_MIB, &unused), -ENOMEM);
	ck_assert_uint_eq(fake_calls(&px.fake, FAKE_ASK_CONTEXTS), 1);
	ck_assert_uint_eq(fake_calls(&px.fake, FAKE_ASK_PROCESSES), 0);
}
END_TEST

START_TEST(pending_memory_is_waited_for_rather_than_refused)
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

START_TEST(pending_blocks_that_merge_into_a_fit_need_no_driver)
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

START_TEST(a_late_block_is_waited_for_but_not_for_ever)
{
	uint64_t addr = fixture_alloc(200 * GP_MIB), unused;

	fixture_work(); /* nothing makes it complete */
	fixture_free_as(addr, GP_FREE_LATE);
	ck_assert_int_eq(fixture_try(100 * GP_MIB, &unused), -ENOMEM);
	ck_assert_uint_eq(atomic_load(&px.fake.completed), 0);
	ck_assert_uint_ge(fixture_stats().rounds[GP_ROUND_fences].ns, 50000000);
	ck_assert_uint_le(fixture_stats().rounds[GP_ROUND_fences].ns, 200000000);
	fake_complete_all(&px.fake);
	fixture_alloc(100 * GP_MIB);
}
END_TEST

START_TEST(work_that_no_free_would_wait_for_is_not_waited_for)
{
	uint64_t addr = fixture_alloc(200 * GP_MIB);

	fixture_work();
	fixture_free(addr);
	/* A kernel that spins until this very thread says so. */
	fixture_work();
	fixture_free_as(fixture_alloc(GP_KIB), GP_FREE_LATE);
	fixture_alloc(GP_KIB);
	fixture_alloc(100 * GP_MIB);
	ck_assert_uint_le(atomic_load(&px.fake.completed), 1);
}
END_TEST

START_TEST(a_request_that_nothing_helps_goes_through_every_round_once)
{
	uint64_t addr = fixture_alloc(100 * GP_MIB), unused;
	struct gp_failure failure;
	struct gp_stats stats;

	ck_assert_int_eq(fixture_try(200 * GP_MIB, &unused), -ENOMEM);
	stats = fixture_stats();
	for (int i = 0; i < GP_N_ROUNDS; i++)
		ck_assert_uint_eq(stats.rounds[i].count, i != GP_ROUND_wait);
	ck_assert_uint_eq(stats.ooms, 1);
	ck_assert_uint_eq(stats.used_bytes, 100 * GP_MIB);
	ck_assert(fixture_info(addr).is_used);
	gp_pool_last_failure(px.pool, &failure);
	ck_assert_uint_eq(failure.bytes, 200 * GP_MIB);
	ck_assert(!failure.is_hopeless);
	for (int i = 0; i < GP_N_ROUNDS; i++)
		ck_assert_uint_eq(failure.rounds[i].count, i != GP_ROUND_wait);
	fixture_alloc(100 * GP_MIB);
}
END_TEST

START_TEST(a_failure_tells_of_its_own_rounds_alone)
{
	uint64_t small = fixture_alloc(20 * GP_MIB), unused;
	struct gp_failure failure;

	ck_assert_int_eq(fixture_try(250 * GP_MIB, &unused), -ENOMEM);
	fixture_free_as(small, GP_FREE_SYNCED);
	fixture_alloc(100 * GP_MIB);
	small = fixture_alloc(30 * GP_MIB);
	fixture_free_as(small, GP_FREE_SYNCED);
	ck_assert_int_eq(fixture_try(200 * GP_MIB, &unused), -ENOMEM);
	gp_pool_last_failure(px.pool, &failure);
	ck_assert_uint_eq(failure.rounds[GP_ROUND_settle].count, 1);
	ck_assert_uint_gt(failure.rounds[GP_ROUND_enough].yielded_bytes, 0);
	ck_assert_int_eq(fixture_try(FIXTURE_CAPACITY + 1, &unused), -ENOMEM);
	gp_pool_last_failure(px.pool, &failure);
	ck_assert(failure.is_hopeless);
	ck_assert_uint_eq(failure.rounds[GP_ROUND_settle].count, 0);
}
END_TEST

START_TEST(out_of_memory_inside_the_limit_empties_the_cache_before_it_fails)
{
	uint64_t addr = fixture_alloc(100 * GP_MIB), unused;

	fixture_free_as(addr, GP_FREE_SYNCED);
	px.fake.outside = 100 * GP_MIB;
	ck_assert_int_eq(fixture_try(200 * GP_MIB, &unused), -ENOMEM);
	ck_assert_uint_eq(fixture_stats().total_bytes, 0);
	ck_assert_uint_eq(px.fake.reserved_bytes, 0);
}
END_TEST

/* Somebody else frees while the allocation waits. */
static void free_during_pause(struct fake *fake, enum fake_call call)
{
	uint64_t *addr = fake->hook_arg;

	if (call != FAKE_PAUSE || !*addr)
		return;
	gp_pool_free(&px.map, *addr, GP_FREE_SYNCED);
	*addr = 0;
}

START_TEST(what_another_thread_frees_meanwhile_serves_who_waits_for_it)
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

START_TEST(the_wait_for_others_ends_when_it_was_said_to)
{
	uint64_t unused;

	px.options.oom_wait_ns = 50000000;
	fixture_alloc(200 * GP_MIB);
	ck_assert_int_eq(fixture_try(100 * GP_MIB, &unused), -ENOMEM);
	ck_assert_uint_ge(fixture_stats().rounds[GP_ROUND_wait].ns, 50000000);
	ck_assert_uint_le(fixture_stats().rounds[GP_ROUND_wait].ns, 52000000);
}
END_TEST

/*
 * Somebody else gives memory back while this allocation finds none: it never sees more than the
 * arrival.
 */
static void give_back_during_trim(struct fake *fake, enum fake_call call)
{
	uint64_t *addr = fake->hook_arg;

	if (call != FAKE_TRIM || !*addr)
		return;
	gp_pool_free(&px.map, *addr, GP_FREE_SYNCED);
	*addr = 0;
	gp_pool_reclaim(px.pool);
}

START_TEST(what_another_thread_gives_back_leads_to_another_attempt)
{
	uint64_t held = fixture_alloc(200 * GP_MIB);

	px.fake.hook = give_back_during_trim;
	px.fake.hook_arg = &held;
	fixture_alloc(100 * GP_MIB);
	px.fake.hook = NULL;
	ck_assert_uint_eq(count_of(GP_ROUND_fail), 0);
}
END_TEST

static bool is_served;

/* Is to end before it begins, and may do so when it is done. */
static void *allocate_cancelled(void *unused)
{
	uint64_t addr;

	pthread_cancel(pthread_self());
	is_served = gp_pool_alloc(px.pool, 100 * GP_MIB, 0, &addr) == -ENOMEM;
	pthread_testcancel();
	return NULL;
}

/* Another thread arrives, and has to wait for its turn. */
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

START_TEST(a_thread_that_is_cancelled_while_it_waits_takes_no_lock_with_it)
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
	ck_assert(is_served);
	px.fake.hook = NULL;
}
END_TEST

/* Somebody else looks at what has arrived before this thread has begun to give back. */
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

START_TEST(what_is_given_back_leaves_the_books_once_however_many_threads_look)
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

START_TEST(without_a_way_to_give_back_in_the_background_a_busy_context_is_left_alone)
{
	uint64_t addr, unused;

	px.fake.cannot_release_behind = true;
	addr = fixture_alloc(200 * GP_MIB);
	fixture_free_as(addr, GP_FREE_SYNCED);
	fixture_work(); /* nobody ever frees after it */
	ck_assert_int_eq(fixture_try(100 * GP_MIB, &unused), -ENOMEM);
	ck_assert_uint_eq(fake_calls(&px.fake, FAKE_RELEASE), 0);
	fake_complete_all(&px.fake);
	fixture_alloc(100 * GP_MIB);
	ck_assert_uint_eq(fake_calls(&px.fake, FAKE_RELEASE), 1);
}
END_TEST

/* With the first, and those after rounds that gave something back or saw something arrive. */
static const struct {
	int error;
	unsigned n_attempts_max;
} errors[] = {
	{-ENOMEM, 4},
	{SOME_ERROR, 1},
};

START_TEST(only_an_out_of_memory_is_worth_another_attempt)
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

START_TEST(an_error_that_is_no_out_of_memory_ends_the_rounds)
{
	uint64_t addr = fixture_alloc(200 * GP_MIB), unused;

	fixture_free_as(addr, GP_FREE_SYNCED);
	fake_plan(&px.fake, (struct fake_plan){FAKE_RESERVE, 2, 1, SOME_ERROR});
	ck_assert_int_eq(fixture_try(100 * GP_MIB, &unused), SOME_ERROR);
	ck_assert_uint_eq(count_of(GP_ROUND_all), 0);
	ck_assert_uint_eq(fixture_stats().ooms, 0);
}
END_TEST

/* An allocation that is not pooled: takes bytes of the device. */
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

START_TEST(a_rescue_gives_the_cache_back_for_an_allocation_that_is_not_pooled)
{
	struct outsider o = {.bytes = 150 * GP_MIB};
	uint64_t addr = fixture_alloc(200 * GP_MIB);

	fixture_free_as(addr, GP_FREE_SYNCED);
	ck_assert_int_eq(gp_pool_rescue(fixture_pool(), o.bytes, take_outside, &o), 0);
	ck_assert_uint_eq(o.n_successes, 1);
	ck_assert_uint_eq(fixture_stats().total_bytes, 0);
}
END_TEST

START_TEST(a_rescue_that_nothing_helps_returns_what_the_last_attempt_said)
{
	struct outsider o = {.bytes = 2 * FIXTURE_CAPACITY};

	ck_assert_int_eq(gp_pool_rescue(fixture_pool(), o.bytes, take_outside, &o), -ENOMEM);
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
	ck_assert_int_eq(gp_pool_rescue(fixture_pool(), o.bytes, take_outside, &o), 0);
	px.fake.hook = NULL;
	ck_assert_uint_eq(o.n_successes, 1);
	ck_assert_uint_eq(px.fake.outside, 150 * GP_MIB);
}
END_TEST

START_TEST(a_capture_during_the_rounds_forbids_fences_but_not_giving_back)
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
	tcase_add_test(tc, the_rounds_are_numbered_in_the_order_in_which_they_run);
	tcase_add_test(tc, one_cached_piece_that_covers_what_is_missing_is_given_back);
	tcase_add_test(tc, else_the_least_recently_used_are_given_back_until_it_is_enough);
	tcase_add_test(tc, with_a_limit_only_what_is_over_it_is_given_back);
	tcase_add_test(tc, what_the_driver_caches_itself_is_trimmed);
	tcase_add_test(tc, other_contexts_are_asked_before_other_processes);
	tcase_add_test(tc, other_processes_are_not_asked_for_what_a_limit_forbids);
	tcase_add_test(tc, pending_memory_is_waited_for_rather_than_refused);
	tcase_add_test(tc, pending_blocks_that_merge_into_a_fit_need_no_driver);
	tcase_add_test(tc, a_late_block_is_waited_for_but_not_for_ever);
	tcase_add_test(tc, work_that_no_free_would_wait_for_is_not_waited_for);
	tcase_add_test(tc, a_request_that_nothing_helps_goes_through_every_round_once);
	tcase_add_test(tc, a_failure_tells_of_its_own_rounds_alone);
	tcase_add_test(tc, out_of_memory_inside_the_limit_empties_the_cache_before_it_fails);
	tcase_add_test(tc, what_another_thread_frees_meanwhile_serves_who_waits_for_it);
	tcase_add_test(tc, the_wait_for_others_ends_when_it_was_said_to);
	tcase_add_test(tc, what_another_thread_gives_back_leads_to_another_attempt);
	tcase_add_test(tc, a_thread_that_is_cancelled_while_it_waits_takes_no_lock_with_it);
	tcase_add_loop_test(tc, what_is_given_back_leaves_the_books_once_however_many_threads_look,
		0, sizeof(releases) / sizeof(*releases));
	tcase_add_test(
		tc, without_a_way_to_give_back_in_the_background_a_busy_context_is_left_alone);
	tcase_add_loop_test(tc, only_an_out_of_memory_is_worth_another_attempt, 0,
		sizeof(errors) / sizeof(*errors));
	tcase_add_test(tc, an_error_that_is_no_out_of_memory_ends_the_rounds);
	tcase_add_test(tc, a_rescue_gives_the_cache_back_for_an_allocation_that_is_not_pooled);
	tcase_add_test(tc, a_rescue_that_nothing_helps_returns_what_the_last_attempt_said);
	tcase_add_test(tc, a_rescue_that_succeeds_while_it_waits_is_not_attempted_again);
	tcase_add_test(tc, a_capture_during_the_rounds_forbids_fences_but_not_giving_back);
	return suite_run(suite);
}
