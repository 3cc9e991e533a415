/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Pools of the kind vmm that fall asleep and wake: what is copied, what goes back, and what an error leaves. */

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "pool/pool_control.h"
#include "pool/vmm/pin.h"
#include "pool/vmm/sleep.h"
#include "pool/vmm/spill.h"
#include "pool_fixture.h"
#include "tests/suite.h"

#define GRANULE (2 * GP_MIB)

static int fall_asleep_and(bool drops)
{
	struct gp_sleep_bytes bytes;
	struct gp_pool *pool = fixture_pool();
	int r;

	(void)gp_pool_reclaim(pool);
	r = gp_pool_sleep_enter(pool, 0);
	if (r)
		return r;
	r = gp_pool_sleep_survey(pool, drops, &bytes);
	if (!r)
		r = gp_pool_sleep_take_host(pool, NULL, NULL);
	if (!r)
		r = gp_pool_sleep_move_out(pool, NULL, NULL);
	gp_pool_sleep_leave(pool);
	return r;
}

static int fall_asleep(void)
{
	return fall_asleep_and(false);
}

/* Takes device memory in steps of at most these bytes. -ENOMEM once a step finds none. */
static int take_in_steps(struct gp_pool *pool, uint64_t most)
{
	for (;;) {
		uint64_t taken = 0;
		bool is_all;
		int r = gp_pool_sleep_take_some(pool, most, &taken, &is_all);

		if (r || is_all)
			return r;
		ck_assert_uint_le(taken, most);
		if (!taken)
			return -ENOMEM;
	}
}

/* step: 0: all memory at once. */
static int wake_in_steps(uint64_t step)
{
	struct gp_pool *pool = fixture_pool();
	int r = gp_pool_sleep_enter(pool, 0);

	if (r)
		return r;
	r = step ? take_in_steps(pool, step) : gp_pool_sleep_take_device(pool);
	if (!r)
		r = gp_pool_sleep_move_in(pool);
	if (r)
		gp_pool_sleep_return_device(pool);
	gp_pool_sleep_leave(pool);
	return r;
}

static int wake(void)
{
	return wake_in_steps(0);
}

static struct gp_sleep_bytes asleep(void)
{
	return gp_pool_asleep(fixture_pool());
}

START_TEST(a_pool_asleep_holds_no_device_memory_and_has_the_same_addresses_awake)
{
	uint64_t large = fixture_alloc(40 * GP_MIB), small = fixture_alloc(GP_KIB);

	ck_assert_int_eq(fall_asleep(), 0);
	ck_assert_uint_eq(px.fake.reserved_bytes, 0);
	ck_assert_uint_eq(asleep().device_bytes, 42 * GP_MIB);
	ck_assert_uint_eq(asleep().host_bytes, 40 * GP_MIB + GP_KIB);
	ck_assert_uint_eq(px.fake.host_bytes, 42 * GP_MIB);
	/* The limit keeps room for the memory. */
	ck_assert_uint_eq(atomic_load(&px.budget.charged_bytes), 42 * GP_MIB);
	fixture_check();
	ck_assert_int_eq(wake(), 0);
	ck_assert_uint_eq(px.fake.reserved_bytes, 42 * GP_MIB);
	ck_assert_uint_eq(px.fake.host_bytes, 0);
	ck_assert_uint_eq(asleep().device_bytes, 0);
	ck_assert_uint_eq(fixture_info(large).size, 40 * GP_MIB);
	ck_assert_uint_eq(fixture_info(small).size, GP_KIB);
	fixture_check();
	fixture_free_as(large, GP_FREE_SYNCED);
	ck_assert_uint_eq(gp_pool_reclaim(fixture_pool()), 40 * GP_MIB);
}
END_TEST

START_TEST(memory_in_the_host_whose_content_is_dropped_stays_there_and_is_zero)
{
	uint64_t blocks[] = {fixture_alloc(20 * GP_MIB), fixture_alloc(20 * GP_MIB)};
	struct gp_pool *pool = fixture_pool();
	int error;

	fake_complete_all(&px.fake);
	ck_assert_int_eq(gp_pool_sleep_enter(pool, 0), 0);
	ck_assert_uint_eq(gp_spill_out(&pool, 1, 20 * GP_MIB, UINT64_MAX, &error), 20 * GP_MIB);
	gp_pool_sleep_leave(pool);
	ck_assert_int_eq(fall_asleep_and(true), 0);
	ck_assert_uint_eq(px.fake.zeroed_bytes, 20 * GP_MIB);
	ck_assert_uint_eq(asleep().dropped_bytes, 20 * GP_MIB);
	fixture_check();
	ck_assert_int_eq(wake(), 0);
	ck_assert_uint_eq(px.fake.zeroed_bytes, 40 * GP_MIB);
	/* Content that is kept is left alone. */
	ck_assert_int_eq(fall_asleep(), 0);
	ck_assert_int_eq(wake(), 0);
	ck_assert_uint_eq(px.fake.zeroed_bytes, 40 * GP_MIB);
	ck_assert_uint_eq(fixture_info(blocks[0]).size + fixture_info(blocks[1]).size, 40 * GP_MIB);
	fixture_check();
}
END_TEST

START_TEST(memory_whose_content_is_dropped_takes_no_host_memory_and_is_zero_when_it_comes_back)
{
	uint64_t large = fixture_alloc(40 * GP_MIB);

	fixture_alloc(GP_KIB);
	fake_calls(&px.fake, FAKE_COPY);
	ck_assert_int_eq(fall_asleep_and(true), 0);
	ck_assert_uint_eq(fake_calls(&px.fake, FAKE_COPY), 0);
	ck_assert_uint_eq(px.fake.reserved_bytes, 0);
	ck_assert_uint_eq(px.fake.host_bytes, 0);
	ck_assert_uint_eq(asleep().dropped_bytes, 42 * GP_MIB);
	ck_assert_uint_eq(asleep().host_bytes, 0);
	fixture_check();
	ck_assert_int_eq(wake(), 0);
	ck_assert_uint_eq(px.fake.zeroed_bytes, 42 * GP_MIB);
	ck_assert_uint_eq(asleep().dropped_bytes, 0);
	ck_assert_uint_eq(fixture_info(large).size, 40 * GP_MIB);
	fixture_check();
}
END_TEST

START_TEST(cached_memory_is_given_back_and_free_parts_of_chunks_are_not_copied)
{
	uint64_t part = fixture_alloc(20 * GP_MIB), whole = fixture_alloc(20 * GP_MIB);

	fixture_free_as(part, GP_FREE_SYNCED);
	ck_assert_uint_eq(fixture_alloc(8 * GP_MIB), part);
	fixture_free_as(whole, GP_FREE_SYNCED);
	ck_assert_int_eq(fall_asleep(), 0);
	ck_assert_uint_eq(asleep().device_bytes, 20 * GP_MIB);
	ck_assert_uint_eq(asleep().host_bytes, 8 * GP_MIB);
	ck_assert_int_eq(wake(), 0);
	/* The cached memory is gone, except for the rest of the chunk. */
	ck_assert_uint_eq(fixture_stats().total_bytes, 20 * GP_MIB);
}
END_TEST

START_TEST(small_gaps_between_used_blocks_are_copied_with_them)
{
	uint64_t blocks[8];

	for (int i = 0; i < 8; i++)
		blocks[i] = fixture_alloc(128 * GP_KIB);
	for (int i = 1; i < 8; i += 2)
		fixture_free_as(blocks[i], GP_FREE_SYNCED);
	fake_calls(&px.fake, FAKE_COPY);
	ck_assert_int_eq(fall_asleep(), 0);
	ck_assert_uint_eq(fake_calls(&px.fake, FAKE_COPY), 1);
	ck_assert_uint_eq(asleep().host_bytes, 7 * 128 * GP_KIB);
	ck_assert_int_eq(wake(), 0);
}
END_TEST

/* A pending block may belong to a graph. */
START_TEST(memory_that_was_freed_and_is_still_pending_is_copied)
{
	uint64_t addr = fixture_alloc(20 * GP_MIB);

	fixture_free(addr);
	fake_submit(&px.fake, 1);
	fixture_work();
	ck_assert_uint_eq(fixture_stats().total_bytes, 20 * GP_MIB);
	fake_complete_all(&px.fake);
	ck_assert_int_eq(fall_asleep(), 0);
	ck_assert_uint_eq(asleep().device_bytes, 0); /* it was completed, so it is gone */
}
END_TEST

/* Each step of a sleep fails once, for the nth chunk. */
static const struct {
	enum fake_call call;
	unsigned nth;
	int error;
} sleep_failures[] = {
	{FAKE_HOST_TAKE, 1, -ENOMEM},
	{FAKE_HOST_TAKE, 3, -ENOMEM},
	{FAKE_COPY, 1, 700},
	{FAKE_COPY, 3, 700},
	{FAKE_COPY_WAIT, 1, 700},
	{FAKE_COPY_WAIT, 4, 700},
	{FAKE_UNMAP, 1, 999},
	{FAKE_UNMAP, 3, 999},
};

/* Into host memory that is new, the copies start earlier than into memory that was kept. */
START_TEST(a_sleep_that_fails_can_be_undone_and_tried_again)
{
	enum fake_call call = sleep_failures[_i / 2].call;
	int error = sleep_failures[_i / 2].error;

	px.fake.is_host_kept = _i % 2;
	for (int i = 0; i < 4; i++)
		fixture_alloc(20 * GP_MIB);
	fake_plan(&px.fake, (struct fake_plan){call, sleep_failures[_i / 2].nth, 1, error});
	ck_assert_int_eq(fall_asleep(), error);
	ck_assert(!fake_is_planned(&px.fake, call));
	ck_assert_uint_eq(px.fake.host_bytes, asleep().host_bytes ? 80 * GP_MIB : 0);
	ck_assert_uint_eq(px.fake.reserved_bytes, 80 * GP_MIB - asleep().device_bytes);
	fixture_check();
	ck_assert_int_eq(wake(), 0);
	ck_assert_uint_eq(px.fake.reserved_bytes, 80 * GP_MIB);
	ck_assert_uint_eq(px.fake.host_bytes, 0);
	ck_assert_int_eq(fall_asleep(), 0);
	ck_assert_uint_eq(px.fake.reserved_bytes, 0);
	ck_assert_int_eq(wake(), 0);
}
END_TEST

/* Counts the calls of that kind in the log from that number on. */
static unsigned calls_since(uint64_t n_logged, enum fake_call call)
{
	unsigned n = 0;

	ck_assert_uint_le(px.fake.n_logged - n_logged, FAKE_LOG_SIZE);
	for (uint64_t i = n_logged; i < px.fake.n_logged; i++)
		n += px.fake.log[i % FAKE_LOG_SIZE].call == call;
	return n;
}

/* Counts the calls of that kind in the log before the last time that host memory was taken. */
static unsigned calls_before_last_take(enum fake_call call)
{
	uint64_t last = px.fake.n_logged;
	unsigned n = 0;

	while (last && px.fake.log[--last % FAKE_LOG_SIZE].call != FAKE_HOST_TAKE) {
	}
	for (uint64_t i = 0; i < last; i++)
		n += px.fake.log[i % FAKE_LOG_SIZE].call == call;
	return n;
}

START_TEST(copies_into_new_host_memory_run_while_the_next_piece_is_taken)
{
	px.fake.is_host_kept = _i;
	fixture_alloc(100 * GP_MIB);
	ck_assert_int_eq(fall_asleep(), 0);
	ck_assert_uint_lt(px.fake.n_logged, FAKE_LOG_SIZE);
	if (px.fake.is_host_kept)
		ck_assert_uint_eq(calls_before_last_take(FAKE_COPY), 0);
	else
		ck_assert_uint_ge(calls_before_last_take(FAKE_COPY), 100 * GP_MIB / FAKE_PIECE - 1);
	ck_assert_uint_eq(calls_before_last_take(FAKE_UNMAP), 0);
	ck_assert_int_eq(wake(), 0);
}
END_TEST

/* The next piece can then be made ready while the driver pins this one. */
START_TEST(each_piece_of_host_memory_is_announced_with_the_one_before)
{
	uint64_t announced = 0;
	unsigned n = 0;

	fixture_alloc(100 * GP_MIB);
	ck_assert_int_eq(fall_asleep(), 0);
	ck_assert_uint_lt(px.fake.n_logged, FAKE_LOG_SIZE);
	for (uint64_t i = 0; i < px.fake.n_logged; i++) {
		const struct fake_log_entry *entry = &px.fake.log[i];

		if (entry->call != FAKE_HOST_TAKE)
			continue;
		if (n++)
			ck_assert_uint_eq(entry->bytes, announced);
		announced = entry->next_bytes;
	}
	ck_assert_uint_eq(n, (100 * GP_MIB + FAKE_PIECE - 1) / FAKE_PIECE);
	ck_assert_uint_eq(announced, 0);
	ck_assert_int_eq(wake(), 0);
}
END_TEST

/* If the driver refuses to pin it again, the copies are slow, and right. */
START_TEST(host_memory_is_unpinned_asleep_and_pinned_again_by_the_wake)
{
	uint64_t host_bytes;

	fixture_alloc(100 * GP_MIB);
	ck_assert_int_eq(fall_asleep(), 0);
	host_bytes = px.fake.host_bytes;
	ck_assert_uint_eq(px.fake.pinned_bytes, host_bytes);
	ck_assert_int_eq(gp_pool_sleep_enter(px.pool, 0), 0);
	ck_assert(gp_pool_sleep_unpin(px.pool));
	ck_assert_uint_lt(px.fake.pinned_bytes, host_bytes);
	while (gp_pool_sleep_unpin(px.pool)) {
	}
	gp_pool_sleep_leave(px.pool);
	ck_assert_uint_eq(px.fake.pinned_bytes, 0);
	ck_assert_uint_eq(px.fake.host_bytes, host_bytes);
	if (_i)
		fake_plan(&px.fake, (struct fake_plan){FAKE_HOST_PIN, 2, 1, 999});
	ck_assert_int_eq(wake(), 0);
	ck_assert(!fake_is_planned(&px.fake, FAKE_HOST_PIN));
	ck_assert_uint_eq(px.fake.pinned_bytes, 0);
	ck_assert_uint_eq(px.fake.host_bytes, 0);
	ck_assert_int_eq(fall_asleep(), 0);
	ck_assert_int_eq(wake(), 0);
}
END_TEST

/* Each step of a wake fails once. */
static const struct {
	enum fake_call call;
	unsigned nth;
	int error;
	bool undo_fails; /* and the driver does not unmap what it has mapped */
} wake_failures[] = {
	{FAKE_RESERVE, 1, -ENOMEM, false},
	{FAKE_RESERVE, 3, -ENOMEM, false},
	{FAKE_RESERVE, 3, 999, false},
	{FAKE_MAP, 1, -ENOMEM, false},
	{FAKE_MAP, 3, -ENOMEM, false},
	{FAKE_MAP, 3, 999, true},
	{FAKE_COPY, 2, 999, false},
	{FAKE_COPY_WAIT, 1, 999, false},
	{FAKE_COPY_WAIT, 1, 999, true},
};

START_TEST(a_wake_that_fails_holds_no_device_memory_and_can_be_tried_again)
{
	uint64_t stuck;

	for (int i = 0; i < 4; i++)
		fixture_alloc(20 * GP_MIB);
	ck_assert_int_eq(fall_asleep(), 0);
	fake_plan(&px.fake,
		(struct fake_plan){wake_failures[_i].call, wake_failures[_i].nth, 1, wake_failures[_i].error});
	if (wake_failures[_i].undo_fails) {
		fake_plan(&px.fake, (struct fake_plan){FAKE_UNDO, 1, 1, 999});
		fake_plan(&px.fake, (struct fake_plan){FAKE_UNMAP, 2, 1, 999});
	}
	ck_assert_int_eq(wake(), wake_failures[_i].error);
	stuck = wake_failures[_i].undo_fails ? 20 * GP_MIB : 0;
	ck_assert_uint_eq(px.fake.reserved_bytes, stuck);
	ck_assert_uint_eq(asleep().device_bytes, 80 * GP_MIB);
	fixture_check();
	ck_assert_int_eq(wake(), 0);
	ck_assert_uint_eq(px.fake.reserved_bytes, 80 * GP_MIB);
	ck_assert_uint_eq(px.fake.host_bytes, 0);
}
END_TEST

START_TEST(a_wake_copies_into_the_memory_that_it_has_while_it_waits_for_more)
{
	struct gp_pool *pool = fixture_pool();
	uint64_t taken = 0, n_logged;
	bool is_all;

	for (int i = 0; i < 4; i++)
		fixture_alloc(20 * GP_MIB);
	ck_assert_int_eq(fall_asleep(), 0);
	ck_assert_int_eq(gp_pool_sleep_enter(pool, 0), 0);
	px.fake.outside = FIXTURE_CAPACITY - 50 * GP_MIB;
	n_logged = px.fake.n_logged;
	ck_assert_int_eq(gp_pool_sleep_take_some(pool, UINT64_MAX, &taken, &is_all), 0);
	ck_assert(!is_all);
	ck_assert_uint_eq(taken, 40 * GP_MIB);
	ck_assert_uint_eq(asleep().taken_bytes, 40 * GP_MIB);
	ck_assert_uint_eq(asleep().device_bytes, 80 * GP_MIB);
	ck_assert_uint_ge(calls_since(n_logged, FAKE_COPY), 2);
	n_logged = px.fake.n_logged;
	ck_assert_int_eq(gp_pool_sleep_take_some(pool, UINT64_MAX, &taken, &is_all), 0);
	ck_assert_uint_eq(taken, 40 * GP_MIB);
	ck_assert_uint_eq(calls_since(n_logged, FAKE_COPY), 0);
	px.fake.outside = 0;
	ck_assert_int_eq(gp_pool_sleep_take_some(pool, 20 * GP_MIB, &taken, &is_all), 0);
	ck_assert(!is_all);
	ck_assert_int_eq(gp_pool_sleep_take_some(pool, 20 * GP_MIB, &taken, &is_all), 0);
	ck_assert(is_all);
	ck_assert_uint_eq(taken, 80 * GP_MIB);
	n_logged = px.fake.n_logged;
	ck_assert_int_eq(gp_pool_sleep_move_in(pool), 0);
	ck_assert_uint_eq(calls_since(n_logged, FAKE_COPY), 0);
	ck_assert_uint_eq(asleep().device_bytes, 0);
	gp_pool_sleep_leave(pool);
	fixture_check();
}
END_TEST

/* The third step finds no memory, or a step fails. The memory of the steps before goes back after its copies. */
static const struct {
	enum fake_call call;
	unsigned nth;
	int error, result;
} step_failures[] = {
	{FAKE_RESERVE, 3, -ENOMEM, -ENOMEM},
	{FAKE_RESERVE, 3, 999, 999},
	{FAKE_MAP, 3, -ENOMEM, -ENOMEM},
	{FAKE_MAP, 3, 999, 999},
	{FAKE_COPY, 4, 999, 999},
	{FAKE_COPY_WAIT, 1, 999, 999},
};

START_TEST(a_wake_in_steps_that_fails_holds_no_device_memory_and_can_be_tried_again)
{
	for (int i = 0; i < 4; i++)
		fixture_alloc(20 * GP_MIB);
	ck_assert_int_eq(fall_asleep(), 0);
	fake_plan(&px.fake,
		(struct fake_plan){step_failures[_i].call, step_failures[_i].nth, 1, step_failures[_i].error});
	ck_assert_int_eq(wake_in_steps(20 * GP_MIB), step_failures[_i].result);
	ck_assert_uint_eq(px.fake.reserved_bytes, 0);
	ck_assert_uint_eq(asleep().device_bytes, 80 * GP_MIB);
	ck_assert_uint_eq(asleep().taken_bytes, 0);
	fixture_check();
	ck_assert_int_eq(wake_in_steps(20 * GP_MIB), 0);
	ck_assert_uint_eq(px.fake.reserved_bytes, 80 * GP_MIB);
	ck_assert_uint_eq(px.fake.host_bytes, 0);
}
END_TEST

START_TEST(a_wake_without_enough_device_memory_takes_none_of_it)
{
	for (int i = 0; i < 4; i++)
		fixture_alloc(20 * GP_MIB);
	ck_assert_int_eq(fall_asleep(), 0);
	px.fake.outside = FIXTURE_CAPACITY - 60 * GP_MIB;
	ck_assert_int_eq(wake(), -ENOMEM);
	ck_assert_uint_eq(px.fake.reserved_bytes, 0);
	px.fake.outside = 0;
	ck_assert_int_eq(wake(), 0);
}
END_TEST

static unsigned n_asked;

static bool stop_at_third(void *arg)
{
	return ++n_asked == 3;
}

START_TEST(a_sleep_that_must_stop_stops_between_two_chunks)
{
	struct gp_sleep_bytes bytes;

	for (int i = 0; i < 4; i++)
		fixture_alloc(20 * GP_MIB);
	ck_assert_int_eq(gp_pool_sleep_enter(px.pool, 0), 0);
	ck_assert_int_eq(gp_pool_sleep_survey(px.pool, false, &bytes), 0);
	ck_assert_uint_eq(bytes.device_bytes, 80 * GP_MIB);
	ck_assert_int_eq(gp_pool_sleep_take_host(px.pool, NULL, NULL), 0);
	ck_assert_int_eq(gp_pool_sleep_move_out(px.pool, stop_at_third, NULL), -ECANCELED);
	gp_pool_sleep_leave(px.pool);
	ck_assert_uint_eq(asleep().device_bytes, 40 * GP_MIB);
	ck_assert_uint_eq(px.fake.host_bytes, 80 * GP_MIB);
	ck_assert_int_eq(wake(), 0);
	ck_assert_uint_eq(px.fake.host_bytes, 0);
}
END_TEST

START_TEST(a_sleep_that_must_stop_stops_between_two_pieces_of_host_memory)
{
	struct gp_sleep_bytes bytes;

	fixture_alloc(100 * GP_MIB);
	fixture_alloc(3 * GP_MIB);
	n_asked = 0;
	ck_assert_int_eq(gp_pool_sleep_enter(px.pool, 0), 0);
	ck_assert_int_eq(gp_pool_sleep_survey(px.pool, false, &bytes), 0);
	ck_assert_uint_eq(bytes.mapped_bytes, 104 * GP_MIB);
	ck_assert_int_eq(gp_pool_sleep_take_host(px.pool, stop_at_third, NULL), -ECANCELED);
	ck_assert_uint_eq(px.fake.host_bytes, 2 * FAKE_PIECE);
	gp_pool_sleep_leave(px.pool);
	ck_assert_uint_eq(px.fake.host_bytes, 0);
	ck_assert_int_eq(fall_asleep(), 0);
	ck_assert_uint_eq(px.fake.host_bytes, bytes.mapped_bytes);
	ck_assert_int_eq(wake(), 0);
}
END_TEST

START_TEST(blocks_that_are_freed_asleep_go_back_once_their_pool_is_awake)
{
	uint64_t first = fixture_alloc(20 * GP_MIB), second = fixture_alloc(20 * GP_MIB);

	ck_assert_int_eq(fall_asleep(), 0);
	fixture_free_as(first, GP_FREE_SYNCED);
	ck_assert_uint_eq(gp_pool_reclaim(fixture_pool()), 0);
	ck_assert_uint_eq(fixture_stats().total_bytes, 40 * GP_MIB);
	fixture_check();
	ck_assert_int_eq(wake(), 0);
	fixture_free_as(second, GP_FREE_SYNCED);
	(void)gp_pool_reclaim(fixture_pool());
	ck_assert_uint_eq(fixture_stats().total_bytes, 0);
}
END_TEST

START_TEST(exported_memory_and_memory_of_invalidated_regions_cannot_sleep)
{
	struct gp_sleep_bytes bytes;
	struct gp_invalidated invalidated;
	uint64_t addr = fixture_alloc(20 * GP_MIB);

	fixture_alloc(20 * GP_MIB);
	if (_i)
		(void)gp_pool_invalidate(px.pool, &invalidated);
	else
		ck_assert_int_eq(gp_pool_export(&px.map, addr), 0);
	ck_assert_int_eq(gp_pool_sleep_enter(px.pool, 0), 0);
	ck_assert_int_eq(gp_pool_sleep_survey(px.pool, false, &bytes), 0);
	ck_assert_uint_eq(bytes.shared_bytes, (_i ? 40 : 20) * GP_MIB);
	gp_pool_sleep_leave(px.pool);
}
END_TEST

START_TEST(a_region_that_is_invalidated_asleep_gives_its_memory_back_awake)
{
	struct gp_invalidated invalidated;
	uint64_t addr = fixture_alloc(20 * GP_MIB);

	ck_assert_int_eq(fall_asleep(), 0);
	ck_assert_uint_eq(gp_pool_invalidate(px.pool, &invalidated), 0);
	ck_assert_uint_eq(invalidated.busy_bytes, 20 * GP_MIB);
	fixture_free_as(addr, GP_FREE_SYNCED);
	(void)gp_pool_reclaim(px.pool);
	ck_assert_int_eq(wake(), 0);
	ck_assert_uint_eq(gp_pool_reclaim(px.pool), 20 * GP_MIB);
	ck_assert_uint_eq(px.fake.reserved_bytes, 0);
}
END_TEST

START_TEST(a_chunk_asleep_cannot_be_pinned_and_a_pinned_chunk_keeps_its_pool_awake)
{
	uint64_t addr = fixture_alloc(20 * GP_MIB);
	struct gp_pin pin;

	ck_assert_int_eq(gp_pool_pin(&px.map, addr, fixture_info(addr).serial, 0, &pin), 0);
	ck_assert_int_eq(gp_pool_sleep_enter(px.pool, 0), -EAGAIN);
	gp_pool_unpin(&pin);
	ck_assert_int_eq(fall_asleep(), 0);
	ck_assert_int_eq(gp_pool_pin(&px.map, addr, fixture_info(addr).serial, 0, &pin), GP_E_FOREIGN);
	ck_assert_int_eq(wake(), 0);
	ck_assert_int_eq(gp_pool_pin(&px.map, addr, fixture_info(addr).serial, 0, &pin), 0);
	gp_pool_unpin(&pin);
}
END_TEST

/* fixture_teardown checks that the addresses and all memory are gone. Row 1: while it wakes. */
START_TEST(a_context_that_ends_while_its_pool_is_asleep_leaves_nothing)
{
	fixture_alloc(40 * GP_MIB);
	fixture_alloc(GP_KIB);
	ck_assert_int_eq(fall_asleep(), 0);
	if (_i)
		ck_assert_int_eq(gp_pool_sleep_enter(px.pool, 0), 0);
	if (_i)
		ck_assert_int_eq(gp_pool_sleep_take_device(px.pool), 0);
	gp_pool_drop(px.pool);
	px.fake.has_ended = true;
	gp_pool_unmap(px.pool);
	if (_i)
		ck_assert_int_eq(gp_pool_sleep_move_in(px.pool), GP_E_DEAD);
	if (_i)
		gp_pool_sleep_leave(px.pool);
	ck_assert_uint_eq(px.fake.host_bytes, 0);
	ck_assert_int_eq(gp_pool_sleep_enter(px.pool, 0), GP_E_DEAD);
	ck_assert_ptr_null(fake_check_unmapped(&px.fake));
	gp_pool_put(px.pool);
	px.pool = NULL;
}
END_TEST

static _Atomic uint64_t grown;

static void *grow(void *arg)
{
	uint64_t addr;

	ck_assert_int_eq(gp_pool_alloc(px.pool, 30 * GP_MIB, 0, &addr), 0);
	atomic_store(&grown, addr);
	return NULL;
}

START_TEST(a_thread_that_has_to_grow_waits_until_the_move_is_over)
{
	pthread_t thread;

	fixture_alloc(20 * GP_MIB);
	ck_assert_int_eq(gp_pool_sleep_enter(px.pool, 0), 0);
	ck_assert_int_eq(pthread_create(&thread, NULL, grow, NULL), 0);
	for (int i = 0; i < 100; i++)
		gp_yield((unsigned)i);
	ck_assert_uint_eq(atomic_load(&grown), 0);
	gp_pool_sleep_leave(px.pool);
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
	ck_assert_uint_ne(atomic_load(&grown), 0);
}
END_TEST

/* The program waits for the wake, and asks again. Memory that is asleep is not moved to serve a request either. */
START_TEST(a_pool_that_is_asleep_does_not_grow)
{
	uint64_t first = fixture_alloc(20 * GP_MIB), addr;

	fixture_alloc(GP_KIB);
	ck_assert_int_eq(fall_asleep(), 0);
	ck_assert_int_eq(fixture_try(20 * GP_MIB, &addr), GP_E_ASLEEP);
	fixture_free_as(first, GP_FREE_SYNCED);
	ck_assert_int_eq(fixture_try(30 * GP_MIB, &addr), GP_E_ASLEEP);
	ck_assert_uint_eq(px.fake.reserved_bytes, 0);
	fixture_check();
	ck_assert_int_eq(wake(), 0);
	ck_assert_int_eq(fixture_try(30 * GP_MIB, &addr), 0);
	fixture_check();
}
END_TEST

START_TEST(only_pools_of_the_kind_vmm_sleep)
{
	fixture_alloc(20 * GP_MIB);
	ck_assert_int_eq(gp_pool_sleep_enter(px.pool, 0), -ENOTSUP);
	ck_assert_uint_eq(asleep().device_bytes, 0);
}
END_TEST

enum { N_STEPS = 1500, N_BLOCKS = 24 };

/* Random steps. The fixture checks every invariant after each of them. */
START_TEST(random_allocations_frees_sleeps_and_wakes_keep_every_invariant)
{
	const char *text = getenv("GPUPOOL_TEST_SEED");
	unsigned seed = text ? (unsigned)strtoul(text, NULL, 0) : 28;
	uint64_t blocks[N_BLOCKS] = {0};
	bool is_asleep = false;

	for (int i = 0; i < N_STEPS; i++) {
		unsigned action = (unsigned)rand_r(&seed) % 8, which = (unsigned)rand_r(&seed) % N_BLOCKS;
		unsigned fault = (unsigned)rand_r(&seed) % 4;

		px.fake.is_host_kept = i % 3 == 0;
		if (blocks[which] && action < 4) {
			fixture_free_as(blocks[which], action < 2 ? GP_FREE_NORMAL : GP_FREE_SYNCED);
			blocks[which] = 0;
		} else if (!blocks[which] && action < 4 && !is_asleep) {
			uint64_t size = (uint64_t)rand_r(&seed) % (action ? 9 * GP_MIB : 64 * GP_KIB) + 1;

			if (fixture_try(size, &blocks[which]))
				blocks[which] = 0;
		} else if (action == 4 && !is_asleep) {
			fixture_work();
		} else if (action == 5) {
			(void)gp_pool_reclaim(fixture_pool());
		} else if (action >= 6 && !is_asleep) {
			enum fake_call call = fault == 1 ? FAKE_HOST_TAKE : fault == 2 ? FAKE_COPY : FAKE_UNMAP;

			fake_complete_all(&px.fake);
			if (fault)
				fake_plan(&px.fake,
					(struct fake_plan){call, 1 + which % 4, 1, fault == 1 ? -ENOMEM : 999});
			(void)fall_asleep_and(which == 0);
			fake_plan(&px.fake, (struct fake_plan){call, 1, 0, 0});
			is_asleep = asleep().device_bytes != 0;
		} else if (is_asleep) {
			enum fake_call call = fault == 1 ? FAKE_RESERVE : fault == 2 ? FAKE_COPY : FAKE_MAP;

			if (fault)
				fake_plan(&px.fake, (struct fake_plan){call, 1 + which % 4, 1, -ENOMEM});
			if (wake_in_steps(i % 2 ? 64 * GP_MIB : 0))
				ck_assert_uint_eq(
					asleep().device_bytes + px.fake.reserved_bytes, fixture_stats().total_bytes);
			fake_plan(&px.fake, (struct fake_plan){call, 1, 0, 0});
			is_asleep = asleep().device_bytes != 0;
		}
		fixture_check();
	}
	ck_assert_int_eq(wake(), 0);
	ck_assert_uint_eq(px.fake.host_bytes, 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("sleep");
	TCase *tc = fixture_case(GP_KIND_VMM), *other = fixture_case(GP_KIND_SPLIT);

	tcase_add_test(tc, a_pool_asleep_holds_no_device_memory_and_has_the_same_addresses_awake);
	tcase_add_test(tc, memory_in_the_host_whose_content_is_dropped_stays_there_and_is_zero);
	tcase_add_test(tc, memory_whose_content_is_dropped_takes_no_host_memory_and_is_zero_when_it_comes_back);
	tcase_add_test(tc, cached_memory_is_given_back_and_free_parts_of_chunks_are_not_copied);
	tcase_add_test(tc, small_gaps_between_used_blocks_are_copied_with_them);
	tcase_add_test(tc, memory_that_was_freed_and_is_still_pending_is_copied);
	tcase_add_loop_test(tc, a_sleep_that_fails_can_be_undone_and_tried_again, 0,
		2 * (int)(sizeof(sleep_failures) / sizeof(*sleep_failures)));
	tcase_add_loop_test(tc, copies_into_new_host_memory_run_while_the_next_piece_is_taken, 0, 2);
	tcase_add_test(tc, each_piece_of_host_memory_is_announced_with_the_one_before);
	tcase_add_test(tc, a_wake_copies_into_the_memory_that_it_has_while_it_waits_for_more);
	tcase_add_loop_test(tc, a_wake_in_steps_that_fails_holds_no_device_memory_and_can_be_tried_again, 0,
		(int)(sizeof(step_failures) / sizeof(*step_failures)));
	tcase_add_loop_test(tc, host_memory_is_unpinned_asleep_and_pinned_again_by_the_wake, 0, 2);
	ADD_ROWS(tc, wake_failures, a_wake_that_fails_holds_no_device_memory_and_can_be_tried_again);
	tcase_add_test(tc, a_wake_without_enough_device_memory_takes_none_of_it);
	tcase_add_test(tc, a_sleep_that_must_stop_stops_between_two_chunks);
	tcase_add_test(tc, a_sleep_that_must_stop_stops_between_two_pieces_of_host_memory);
	tcase_add_test(tc, blocks_that_are_freed_asleep_go_back_once_their_pool_is_awake);
	tcase_add_loop_test(tc, exported_memory_and_memory_of_invalidated_regions_cannot_sleep, 0, 2);
	tcase_add_test(tc, a_region_that_is_invalidated_asleep_gives_its_memory_back_awake);
	tcase_add_test(tc, a_chunk_asleep_cannot_be_pinned_and_a_pinned_chunk_keeps_its_pool_awake);
	tcase_add_loop_test(tc, a_context_that_ends_while_its_pool_is_asleep_leaves_nothing, 0, 2);
	tcase_add_test(tc, a_thread_that_has_to_grow_waits_until_the_move_is_over);
	tcase_add_test(tc, a_pool_that_is_asleep_does_not_grow);
	tcase_add_test(tc, random_allocations_frees_sleeps_and_wakes_keep_every_invariant);
	suite_add_tcase(suite, tc);
	tcase_add_test(other, only_pools_of_the_kind_vmm_sleep);
	suite_add_tcase(suite, other);
	return suite_run(suite);
}
