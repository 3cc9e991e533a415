/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* The end of each test program: runs the suite, and prints the result of each test to stdout. */

#include <check.h>

/* Adds a test that runs once for each row of an array, with the number of the row in _i. */
#define ADD_ROWS(tc, rows, test) tcase_add_loop_test(tc, test, 0, (int)(sizeof(rows) / sizeof(*(rows))))

/* Runs and releases the suite. Returns the exit code. */
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
