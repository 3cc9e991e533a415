/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Requests for which there is room, and none for all that the kind would rather take. */

#include <errno.h>

#include "pool_fixture.h"
#include "tests/suite.h"

#define LIMIT (233 * GP_MIB)

/*
 * What the device, and the limit, has left where a class is larger than that, or would have if others gave something:
 * the driver alone would have given it. The classes of simple are multiples of 2 MiB, those of binned here of 16 MiB.
 */
static const struct {
	enum gp_kind kind;
	uint64_t bytes, outside, contexts_yield, processes_yield, limit;
} shortages[] = {
	{GP_KIND_BINNED, 229 * GP_MIB + 1, 23 * GP_MIB, 0, 0, GP_NO_LIMIT},
	{GP_KIND_BINNED, 229 * GP_MIB + 1, 0, 0, 0, LIMIT},
	{GP_KIND_BINNED, 229 * GP_MIB + 1, 100 * GP_MIB, 100 * GP_MIB, 0, LIMIT},
	{GP_KIND_BINNED, 229 * GP_MIB + 1, 100 * GP_MIB, 0, 100 * GP_MIB, LIMIT},
	{GP_KIND_SIMPLE, 232 * GP_MIB + 1, 23 * GP_MIB, 0, 0, GP_NO_LIMIT},
	{GP_KIND_SIMPLE, 232 * GP_MIB + 1, 0, 0, 0, LIMIT},
	{GP_KIND_SIMPLE, 232 * GP_MIB + 1, 100 * GP_MIB, 100 * GP_MIB, 0, LIMIT},
	{GP_KIND_SIMPLE, 232 * GP_MIB + 1, 100 * GP_MIB, 0, 100 * GP_MIB, LIMIT},
};

START_TEST(no_request_fails_for_the_sake_of_its_class)
{
	uint64_t bytes = shortages[_i].bytes, addr;

	fixture_setup(shortages[_i].kind);
	(void)fixture_pool();
	px.fake.outside = shortages[_i].outside;
	px.fake.contexts_yield = shortages[_i].contexts_yield;
	px.fake.processes_yield = shortages[_i].processes_yield;
	atomic_store(&px.budget.limit_bytes, shortages[_i].limit);
	for (int i = 0; i < 3; i++) {
		ck_assert_int_eq(fixture_try(bytes, &addr), 0);
		ck_assert_uint_ge(fixture_info(addr).rounded, bytes);
		fixture_free(addr);
	}
	ck_assert_int_eq(fixture_try(LIMIT + GP_MIB, &addr), -ENOMEM);
	fixture_teardown();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("shortage");
	TCase *tc = tcase_create("shortage");

	suite_add_tcase(suite, tc);
	tcase_add_loop_test(
		tc, no_request_fails_for_the_sake_of_its_class, 0, sizeof(shortages) / sizeof(*shortages));
	return suite_run(suite);
}
