/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Every hook of a function that submits work (submit.def), or in which the driver examines addresses (HOOK_PASSED and
 * HOOK_NODE in hooks.def), waits at the closed gate, and counts as under way while the driver runs. The driver's
 * functions are stand-ins, and the arguments are zeros.
 */

#include <check.h>
#include <stddef.h>

#include "shim/driver/driver_table.h"
#include "shim/driver/submit.h"
#include "tests/suite.h"

static const struct row {
	const char *symbol;
	size_t original; /* offset in struct gp_real */
	bool is_work;
} rows[] = {
#define HOOK(symbol, name, version, flags, parameters, arguments)
#define HOOK_PASSED(symbol, name, version, flags, parameters, arguments) \
	{#symbol, offsetof(struct gp_real, symbol), false},
#define WORK(symbol, name, version, flags, parameters, arguments, stream) \
	{#symbol, offsetof(struct gp_real, symbol), true},
#include "shim/driver/hooks.def"
};

typedef CUresult any_function(uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t);

static unsigned n_waits, n_calls;
static bool was_closed, was_under_way;

/* Stands in for the wake. */
static bool open_gate(void)
{
	n_waits++;
	gp_submission_open(&gp_submitted);
	return true;
}

static CUresult stand_in(void)
{
	n_calls++;
	was_closed = gp_submission_is_closed(&gp_submitted);
	was_under_way = gp_submission_is_any_under_way(&gp_submitted) || atomic_load(&gp_submitted.n_visits) != 0;
	return CUDA_ERROR_INVALID_HANDLE;
}

static void set_original(const struct row *row, CUresult (*fn)(void))
{
	*(CUresult(**)(void))(void *)((char *)&gp_real + row->original) = fn;
}

static CUresult call(const struct row *row)
{
	any_function *hook = (any_function *)gp_real_hook(gp_real_index(row->symbol));

	return hook(0, 0, 0, 0, 0, 0, 0, 0);
}

static void check(const struct row *row, bool is_closed)
{
	CUresult r;

	n_waits = n_calls = 0;
	set_original(row, stand_in);
	if (is_closed)
		gp_submission_close(&gp_submitted);
	ck_assert_msg(gp_submission_is_quiet(&gp_submitted), "%s: something is under way before", row->symbol);
	r = call(row);
	ck_assert_msg(r == CUDA_ERROR_INVALID_HANDLE && n_calls == 1, "%s: result %d", row->symbol, (int)r);
	ck_assert_msg(n_waits == is_closed, "%s: waited %u times", row->symbol, n_waits);
	ck_assert_msg(!was_closed, "%s: passed the closed gate", row->symbol);
	ck_assert_msg(was_under_way, "%s: was not seen under way", row->symbol);
	ck_assert_msg(gp_submission_is_quiet(&gp_submitted), "%s: something is under way afterwards", row->symbol);
	set_original(row, NULL);
}

START_TEST(a_call_that_submits_work_or_examines_addresses_waits_at_the_closed_gate)
{
	atomic_store(&gp_real_is_ready, true);
	gp_submit_on_closed(open_gate);
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		check(&rows[i], false);
		check(&rows[i], true);
	}
}
END_TEST

/* A thread that has closed the gate moves memory, and may pass. */
static bool refuse(void)
{
	n_waits++;
	return false;
}

START_TEST(the_thread_that_has_closed_the_gate_passes_it)
{
	atomic_store(&gp_real_is_ready, true);
	gp_submit_on_closed(refuse);
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		n_calls = 0;
		set_original(&rows[i], stand_in);
		gp_submission_close(&gp_submitted);
		(void)gp_submission_is_quiet(&gp_submitted);
		(void)call(&rows[i]);
		ck_assert_msg(n_calls == 1 && was_closed, "%s", rows[i].symbol);
		gp_submission_open(&gp_submitted);
		ck_assert_msg(gp_submission_is_quiet(&gp_submitted), "%s: still under way", rows[i].symbol);
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("gate");
	TCase *tc = tcase_create("gate");

	tcase_add_test(tc, a_call_that_submits_work_or_examines_addresses_waits_at_the_closed_gate);
	tcase_add_test(tc, the_thread_that_has_closed_the_gate_passes_it);
	suite_add_tcase(suite, tc);
	return suite_run(suite);
}
