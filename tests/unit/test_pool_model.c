/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Random traces through the model. The first step that breaks an invariant is reported with its seed.
 *
 * GPUPOOL_TEST_SEED runs a single seed, GPUPOOL_TEST_STEPS sets the length of a trace.
 */

#include <check.h>
#include <inttypes.h>
#include <stdlib.h>

#include "pool_model.h"
#include "tests/suite.h"

enum { STEPS = 2500, SEEDS_PER_ROW = 5 };

struct trace {
	uint64_t seed, random;
	unsigned step;
};

/* xorshift64*: Vigna 2016. */
static uint64_t draw_below(void *arg, uint64_t n)
{
	struct trace *trace = arg;

	trace->random ^= trace->random >> 12;
	trace->random ^= trace->random << 25;
	trace->random ^= trace->random >> 27;
	return (trace->random * UINT64_C(0x2545f4914f6cdd1d) >> 11) % n;
}

static void give_up(void *arg, const char *what)
{
	const struct trace *trace = arg;

	ck_abort_msg("%s: GPUPOOL_TEST_SEED=%" PRIu64 ", step %u", what, trace->seed, trace->step);
}

static uint64_t number_from(const char *name, uint64_t otherwise)
{
	const char *text = getenv(name);

	return text ? strtoull(text, NULL, 0) : otherwise;
}

START_TEST(a_random_trace_keeps_all_invariants_of_the_pool)
{
	struct trace trace = {.seed = number_from("GPUPOOL_TEST_SEED", (uint64_t)(_i % SEEDS_PER_ROW) + 1)};
	struct model_options options = {
		.kind = (enum gp_kind)(_i / (MODEL_N_PROFILES * SEEDS_PER_ROW)),
		.profile = (unsigned)_i / SEEDS_PER_ROW % MODEL_N_PROFILES,
		.below = draw_below,
		.fail = give_up,
		.arg = &trace,
	};
	uint64_t steps = number_from("GPUPOOL_TEST_STEPS", STEPS);
	struct model *m;

	trace.random = trace.seed * UINT64_C(0x9e3779b97f4a7c15) + 1;
	m = model_new(&options);
	for (; trace.step < steps; trace.step++)
		model_step(m);
	model_free(m);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("pool_model");
	TCase *tc = tcase_create("pool_model");

	suite_add_tcase(suite, tc);
	tcase_set_timeout(tc, 120);
	tcase_add_loop_test(
		tc, a_random_trace_keeps_all_invariants_of_the_pool, 0, GP_N_KINDS * MODEL_N_PROFILES * SEEDS_PER_ROW);
	return suite_run(suite);
}
