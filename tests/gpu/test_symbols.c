/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Tests symbols.h, with libraries that have a hash table of either kind only. */

#include <dlfcn.h>
#include <stddef.h>

#include "tests/gpu/symbols.h"
#include "tests/suite.h"

/* A test runs in a process of its own, and leaves its library loaded. */
static const struct {
	const char *path, *name;
	int kind;
} libraries[] = {
	{LIBRARY_GNU, "libsymbols_gnu.so", 1},
	{LIBRARY_SYSV, "libsymbols_sysv.so", 2},
};

static void *load(int row)
{
	void *library = dlopen(libraries[row].path, RTLD_NOW);

	ck_assert_ptr_nonnull(library);
	return library;
}

START_TEST(a_function_of_a_loaded_library_is_found_with_either_hash_table)
{
	void *library = load(_i);
	int (*answer)(void) = (int (*)(void))function_in(libraries[_i].name, "symbols_answer");

	ck_assert_ptr_nonnull((void *)answer);
	ck_assert_ptr_eq((void *)answer, dlsym(library, "symbols_answer"));
	ck_assert_int_eq(answer(), libraries[_i].kind);
	ck_assert_ptr_eq(function_in(libraries[_i].name, "symbols_process"), dlsym(library, "symbols_process"));
}
END_TEST

START_TEST(a_function_that_a_library_only_needs_and_a_variable_are_not_found)
{
	(void)load(_i);
	ck_assert_ptr_null(function_in(libraries[_i].name, "symbols_other"));
	ck_assert_ptr_null(function_in(libraries[_i].name, "symbols_answe"));
	ck_assert_ptr_null(function_in(libraries[_i].name, "getpid"));
	ck_assert_ptr_null(function_in(libraries[_i].name, "symbols_variable"));
}
END_TEST

START_TEST(a_library_that_is_not_loaded_has_no_functions)
{
	ck_assert_ptr_null(function_in(libraries[_i].name, "symbols_answer"));
	(void)load(!_i);
	ck_assert_ptr_null(function_in(libraries[_i].name, "symbols_answer"));
}
END_TEST

START_TEST(a_program_ends_with_an_error_if_a_function_that_it_needs_is_not_found)
{
	(void)load(_i);
	ck_assert_ptr_nonnull(must_find(libraries[_i].name, "symbols_answer"));
	(void)must_find(libraries[_i].name, "symbols_other");
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("symbols");
	TCase *tc = tcase_create("symbols");

	suite_add_tcase(suite, tc);
	ADD_ROWS(tc, libraries, a_function_of_a_loaded_library_is_found_with_either_hash_table);
	ADD_ROWS(tc, libraries, a_function_that_a_library_only_needs_and_a_variable_are_not_found);
	ADD_ROWS(tc, libraries, a_library_that_is_not_loaded_has_no_functions);
	tcase_add_loop_exit_test(tc, a_program_ends_with_an_error_if_a_function_that_it_needs_is_not_found, 2, 0, 2);
	return suite_run(suite);
}
