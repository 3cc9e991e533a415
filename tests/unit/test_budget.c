/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include <check.h>
#include <pthread.h>

#include "pool/budget.h"
#include "tests/suite.h"

static const struct {
	uint64_t limit, charged, bytes;
	bool fits;
	uint64_t left; /* before the charge */
} rows[] = {
	{100, 0, 100, true, 100},
	{100, 0, 101, false, 100},
	{100, 60, 40, true, 40},
	{100, 60, 41, false, 40},
	{100, 100, 0, true, 0},
	{100, 0, UINT64_MAX, false, 100},
	{100, 60, UINT64_MAX - 10, false, 40},
	{0, 0, 0, true, 0},
	{0, 0, 1, false, 0},
	{GP_NO_LIMIT, 60, GP_NO_LIMIT - 60, true, GP_NO_LIMIT},
	{GP_NO_LIMIT, 60, GP_NO_LIMIT - 59, false, GP_NO_LIMIT},
};

START_TEST(a_charge_beyond_the_limit_fails_and_charges_nothing)
{
	uint64_t charged = rows[_i].charged;
	struct gp_budget budget;

	gp_budget_init(&budget, rows[_i].limit);
	ck_assert(gp_budget_charge(&budget, charged));
	ck_assert_uint_eq(gp_budget_left(&budget), rows[_i].left);
	ck_assert_int_eq(gp_budget_charge(&budget, rows[_i].bytes), rows[_i].fits);
	ck_assert_uint_eq(atomic_load(&budget.charged_bytes), rows[_i].fits ? charged + rows[_i].bytes : charged);
}
END_TEST

START_TEST(a_limit_below_the_charge_refuses_new_charges_until_enough_is_uncharged)
{
	struct gp_budget budget;

	gp_budget_init(&budget, GP_NO_LIMIT);
	ck_assert(gp_budget_charge(&budget, 100));
	atomic_store(&budget.limit_bytes, 50);
	ck_assert_uint_eq(gp_budget_left(&budget), 0);
	ck_assert(!gp_budget_charge(&budget, 1));
	gp_budget_uncharge(&budget, 60);
	ck_assert_uint_eq(gp_budget_left(&budget), 10);
	ck_assert(gp_budget_charge(&budget, 10));
}
END_TEST

enum { N_THREADS = 4, N_ROUNDS = 20000, LIMIT = 5 };

static struct gp_budget shared;
static _Atomic unsigned n_held, n_over;

/* Each thread holds up to three of the five bytes. */
static void *charge_and_uncharge(void *arg)
{
	for (int i = 0; i < N_ROUNDS; i++) {
		unsigned bytes = 1 + (unsigned)i % 3;

		if (!gp_budget_charge(&shared, bytes))
			continue;
		if (atomic_fetch_add(&n_held, bytes) + bytes > LIMIT)
			atomic_fetch_add(&n_over, 1);
		atomic_fetch_sub(&n_held, bytes);
		gp_budget_uncharge(&shared, bytes);
	}
	return NULL;
}

START_TEST(concurrent_charges_never_exceed_the_limit)
{
	pthread_t threads[N_THREADS];

	gp_budget_init(&shared, LIMIT);
	for (int i = 0; i < N_THREADS; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, charge_and_uncharge, NULL), 0);
	for (int i = 0; i < N_THREADS; i++)
		pthread_join(threads[i], NULL);
	ck_assert_uint_eq(n_over, 0);
	ck_assert_uint_eq(atomic_load(&shared.charged_bytes), 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("budget");
	TCase *tc = tcase_create("budget");

	suite_add_tcase(suite, tc);
	tcase_add_loop_test(tc, a_charge_beyond_the_limit_fails_and_charges_nothing, 0, sizeof(rows) / sizeof(*rows));
	tcase_add_test(tc, a_limit_below_the_charge_refuses_new_charges_until_enough_is_uncharged);
	tcase_add_test(tc, concurrent_charges_never_exceed_the_limit);
	return suite_run(suite);
}
