/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* When memory comes back from the host, of a program whose need goes up and down: played with times of its own. */

#include <check.h>

#include "shim/backend/spill_calm.h"
#include "pool/base.h"
#include "tests/suite.h"

#define MS   UINT64_C(1000000)
#define S    (1000 * MS)
#define LOOK (200 * MS)
#define PART GP_GIB

static struct gp_spill_calm calm;
static uint64_t now_ns, host_bytes;
static unsigned n_out, n_back;

static void start(void)
{
	calm = (struct gp_spill_calm){0};
	now_ns = 1000 * S;
	host_bytes = 0;
	n_out = n_back = 0;
}

/* The program needs bytes more than the device has: that much has to be in the host, in several moves. */
static void need(uint64_t bytes, unsigned n_moves)
{
	if (bytes <= host_bytes)
		return;
	host_bytes = bytes;
	n_out++;
	for (unsigned i = 0; i < n_moves; i++) {
		now_ns += MS;
		gp_spill_calm_note_out(&calm, now_ns);
	}
}

static void look(uint64_t room)
{
	uint64_t back;

	now_ns += LOOK;
	back = gp_min(gp_spill_calm_look(&calm, now_ns, gp_min(room, host_bytes)), PART);
	if (!back)
		return;
	host_bytes -= back;
	n_back++;
	gp_spill_calm_note_back(&calm, now_ns, back);
}

/* There is room for that long. */
static void let(uint64_t ns, uint64_t room)
{
	for (uint64_t end_ns = now_ns + ns; now_ns < end_ns;) {
		if (host_bytes)
			look(room);
		else
			now_ns += LOOK;
	}
}

/* Steps of a program whose need exceeds the device in every second one. */
static const struct {
	uint64_t up_ns, down_ns;
	unsigned n_steps, n_returns; /* at most; the time of calm doubles until it is longer than a step */
} steps[] = {
	{100 * MS, 100 * MS, 1000, 0}, {100 * MS, 900 * MS, 1000, 0}, {100 * MS, 1500 * MS, 1000, 1},
	{1 * S, 3 * S, 1000, 2}, {5 * S, 5 * S, 1000, 3}, {30 * S, 8 * S, 1000, 3},
	{60 * S, 60 * S, 1000, 1000}, /* it was back for long enough to be worth the moves */
};

START_TEST(a_need_that_goes_up_and_down_moves_memory_back_a_few_times_and_not_in_each_step)
{
	start();
	for (unsigned i = 0; i < steps[_i].n_steps; i++) {
		need(PART, 1 + i % 5);
		let(steps[_i].up_ns, 0);
		let(steps[_i].down_ns, PART);
	}
	ck_assert_msg(n_back <= steps[_i].n_returns, "%u returns", n_back);
	ck_assert_uint_le(n_out, n_back + 1);
	/* It comes back once the program needs less for good. */
	let(2 * GP_SPILL_CALM_MAX_NS, PART);
	ck_assert_uint_eq(host_bytes, 0);
}
END_TEST

START_TEST(memory_that_goes_in_many_moves_lengthens_the_calm_once)
{
	start();
	need(PART, 1);
	let(2 * S, PART);
	ck_assert_uint_eq(host_bytes, 0);
	need(PART, 50);
	ck_assert_uint_eq(calm.extra_ns, GP_SPILL_CALM_NS);
	/* It has to go for the first time: nothing came back too early. */
	start();
	need(PART, 50);
	ck_assert_uint_eq(calm.extra_ns, 0);
}
END_TEST

START_TEST(memory_that_was_long_back_before_it_goes_again_returns_after_the_shortest_calm)
{
	start();
	for (int i = 0; i < 4; i++) {
		need(PART, 1);
		let(20 * S, PART);
		now_ns += i < 2 ? 0 : 1000 * S;
	}
	need(PART, 1);
	ck_assert_uint_eq(calm.extra_ns, 0);
}
END_TEST

START_TEST(memory_comes_back_in_parts_as_far_as_there_was_room_all_the_time)
{
	start();
	need(4 * PART, 1);
	look(4 * PART);
	look(PART + PART / 2);
	for (int i = 0; i < 4; i++)
		look(4 * PART);
	ck_assert_uint_eq(n_back, 1);
	look(4 * PART);
	ck_assert_uint_eq(n_back, 2);
	ck_assert_uint_eq(host_bytes, 2 * PART + PART / 2);
	/* There has not been room for more for long enough. */
	for (int i = 0; i < 5; i++)
		look(4 * PART);
	ck_assert_uint_eq(n_back, 2);
	look(4 * PART);
	ck_assert_uint_eq(n_back, 3);
}
END_TEST

START_TEST(a_return_that_is_not_possible_is_tried_again_ever_less_often)
{
	unsigned n_tries = 0;

	start();
	need(PART, 1);
	for (uint64_t end_ns = now_ns + 300 * S; now_ns < end_ns; now_ns += LOOK) {
		if (!gp_spill_calm_look(&calm, now_ns, PART))
			continue;
		n_tries++;
		gp_spill_calm_note_back(&calm, now_ns, 0);
	}
	ck_assert_uint_ge(n_tries, 8);
	ck_assert_uint_le(n_tries, 12);
	/* A busy GPU says nothing of the program's need. */
	ck_assert_uint_eq(calm.extra_ns, 0);
	gp_spill_calm_note_back(&calm, now_ns, PART / 2);
	ck_assert_uint_eq(gp_spill_calm_look(&calm, now_ns, PART / 2), PART / 2);
}
END_TEST

/* The memory of a process that ends becomes free bit by bit: at the first look there is room for less than a chunk. */
START_TEST(room_that_was_too_small_at_the_first_look_does_not_keep_memory_in_the_host)
{
	uint64_t room = 4 * GP_MIB;

	start();
	need(PART, 1);
	for (uint64_t end_ns = now_ns + 10 * S; now_ns < end_ns && host_bytes; room = 4 * PART) {
		uint64_t back;

		now_ns += LOOK;
		back = gp_spill_calm_look(&calm, now_ns, gp_min(room, host_bytes));
		if (!back)
			continue;
		back = back < 20 * GP_MIB ? 0 : back;
		host_bytes -= back;
		gp_spill_calm_note_back(&calm, now_ns, back);
	}
	ck_assert_uint_eq(host_bytes, 0);
}
END_TEST

/* Another process holds the rest of the device for a minute, and then ends. */
START_TEST(room_that_was_too_small_for_long_is_tried_as_soon_as_it_has_grown)
{
	start();
	need(PART, 1);
	for (uint64_t end_ns = now_ns + 60 * S; now_ns < end_ns; now_ns += LOOK)
		if (gp_spill_calm_look(&calm, now_ns, 2 * GP_MIB))
			gp_spill_calm_note_back(&calm, now_ns, 0);
	let(GP_SPILL_CALM_NS + 2 * LOOK, PART);
	ck_assert_uint_eq(host_bytes, 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("spill_calm");
	TCase *tc = tcase_create("spill_calm");

	tcase_add_loop_test(tc, a_need_that_goes_up_and_down_moves_memory_back_a_few_times_and_not_in_each_step, 0,
		(int)(sizeof(steps) / sizeof(*steps)));
	tcase_add_test(tc, memory_that_goes_in_many_moves_lengthens_the_calm_once);
	tcase_add_test(tc, memory_that_was_long_back_before_it_goes_again_returns_after_the_shortest_calm);
	tcase_add_test(tc, memory_comes_back_in_parts_as_far_as_there_was_room_all_the_time);
	tcase_add_test(tc, a_return_that_is_not_possible_is_tried_again_ever_less_often);
	tcase_add_test(tc, room_that_was_too_small_at_the_first_look_does_not_keep_memory_in_the_host);
	tcase_add_test(tc, room_that_was_too_small_for_long_is_tried_as_soon_as_it_has_grown);
	suite_add_tcase(suite, tc);
	return suite_run(suite);
}
