/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* How a program of tests ends: it runs them, and says on stdout what became of each. */

#include <check.h>

/* A test that is run for each row of an array, which finds its own by _i. */
#define ADD_ROWS(tc, rows, test) tcase_add_loop_test(tc, test, 0, (int)(sizeof(rows) / sizeof(*(rows))))

/* The exit code. Releases the suite. */
static inline int suite_run(Suite *suite)
{
	SRunner *runner = srunner_create(suite);
	int failed;

	srunner_set_tap(runner, "-");
	srunner_run_all(runner, CK_SILENT);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
