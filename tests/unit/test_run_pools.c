/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* The frameworks' own pools: --own-pools of gpupool-run. */

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/own_pools.h"
#include "test_run.h"

static const char *first_value(const struct gp_own_pool *row)
{
	static char value[64];

	snprintf(value, sizeof(value), "%.*s", (int)gp_own_pool_value_length(row), row->values);
	return value;
}

START_TEST(own_pools_off_sets_every_switch_and_says_so_in_one_line)
{
	ck_assert_int_eq(RUN("--own-pools=off", "env"), 0);
	for (int i = 0; i < GP_OWN_POOL_COUNT; i++) {
		char wanted[128];

		run_check_in(run_err, gp_own_pools[i].framework);
		if (gp_own_pools[i].how == GP_OWN_POOL_NEVER)
			continue;
		snprintf(wanted, sizeof(wanted), "%s=%s\n", gp_own_pools[i].variable, first_value(&gp_own_pools[i]));
		run_check_in(run_out, wanted);
	}
	run_check_in(run_out, "/own_pools.zip\n");
	ck_assert_msg(strchr(run_err, '\n') == run_err + strlen(run_err) - 1, "expected one line: %s", run_err);
	ck_assert_int_eq(RUN("-q", "--own-pools=off", "true"), 0);
	ck_assert_str_eq(run_err, "");
}
END_TEST

START_TEST(own_pools_on_sets_no_switch)
{
	ck_assert_int_eq(RUN("--own-pools=on", "env"), 0);
	ck_assert_str_eq(run_err, "");
	ck_assert_ptr_null(strstr(run_out, "PYTHONPATH"));
	for (int i = 0; i < GP_OWN_POOL_COUNT; i++)
		if (gp_own_pools[i].how == GP_OWN_POOL_VARIABLE)
			ck_assert_ptr_null(strstr(run_out, gp_own_pools[i].variable));
}
END_TEST

START_TEST(a_switch_that_the_user_has_set_otherwise_is_refused)
{
	const struct gp_own_pool *row = &gp_own_pools[_i];
	char wanted[256];

	if (row->how != GP_OWN_POOL_VARIABLE)
		return;
	setenv(row->variable, "x\x1b", 1);
	ck_assert_int_eq(RUN("--own-pools=off", "touch", "started"), 2);
	snprintf(wanted, sizeof(wanted), "gpupool-run: --own-pools=off needs %s=%s for %s, but it is set to 'x?'.\n",
		row->variable, first_value(row), row->framework);
	run_check_in(run_err, wanted);
	run_check_in(run_err, "\n             Next: unset it, ");
	ck_assert_int_ne(access("started", F_OK), 0);
	ck_assert_int_eq(RUN("true"), 0);
}
END_TEST

START_TEST(a_switch_that_would_do_harm_is_not_set_and_not_refused)
{
	ck_assert_int_eq(RUN("--own-pools=off", "env"), 0);
	ck_assert_ptr_null(strstr(run_out, "XLA_PYTHON_CLIENT_ALLOCATOR"));
	setenv("XLA_PYTHON_CLIENT_ALLOCATOR", "bfc", 1);
	ck_assert_int_eq(RUN("--own-pools=off", "env"), 0);
	run_check_in(run_out, "XLA_PYTHON_CLIENT_ALLOCATOR=bfc\n");
}
END_TEST

START_TEST(a_switch_that_the_user_has_set_to_the_same_effect_is_kept)
{
	setenv("XLA_PYTHON_CLIENT_PREALLOCATE", "False", 1);
	setenv("JULIA_CUDA_MEMORY_POOL", "none", 1);
	setenv("TF_GPU_ALLOCATOR", "", 1);
	ck_assert_int_eq(RUN("--own-pools=off", "env"), 0);
	run_check_in(run_out, "XLA_PYTHON_CLIENT_PREALLOCATE=False\n");
	run_check_in(run_out, "JULIA_CUDA_MEMORY_POOL=none\n");
	run_check_in(run_out, "TF_GPU_ALLOCATOR=cuda_malloc\n");
}
END_TEST

START_TEST(the_hook_comes_once_and_first_in_PYTHONPATH)
{
	setenv("PYTHONPATH", "/a b::c", 1);
	ck_assert_int_eq(RUN("--own-pools=off", "sh", "-c", "echo \"$PYTHONPATH\""), 0);
	run_check_in(run_out, "/own_pools.zip:/a b::c\n");
	run_out[strcspn(run_out, "\n")] = '\0';
	char before[PATH_MAX];
	snprintf(before, sizeof(before), "%.*s", PATH_MAX - 1, run_out);
	setenv("PYTHONPATH", before, 1);
	ck_assert_int_eq(RUN("--own-pools=off", "sh", "-c", "echo \"$PYTHONPATH\""), 0);
	run_out[strcspn(run_out, "\n")] = '\0';
	ck_assert_str_eq(run_out, before);
}
END_TEST

START_TEST(print_env_prints_the_switches_of_own_pools)
{
	ck_assert_int_eq(RUN("--own-pools=off", "--print-env"), 0);
	run_check_in(run_out, "export GPUPOOL_OWN_POOLS='off'\n");
	run_check_in(run_out, "export PYTORCH_NO_CUDA_MEMORY_CACHING='1'\n");
	run_check_in(run_out, "/own_pools.zip'\n");
}
END_TEST

START_TEST(help_lists_every_switch_of_own_pools)
{
	ck_assert_int_eq(RUN("--help"), 0);
	for (int i = 0; i < GP_OWN_POOL_COUNT; i++) {
		char wanted[128];

		if (gp_own_pools[i].how == GP_OWN_POOL_NEVER)
			continue;
		snprintf(wanted, sizeof(wanted), "\n  %-12s %s=%s\n", gp_own_pools[i].framework,
			gp_own_pools[i].variable, first_value(&gp_own_pools[i]));
		run_check_in(run_out, wanted);
	}
}
END_TEST

static void make_copied_programs(void)
{
	char command[3 * PATH_MAX];

	snprintf(command, sizeof(command),
		"umask 022 && mkdir -p tree/tools tree/shim && cp '%s' tree/tools/gpupool-run && echo >tree/tools/%s",
		run_path, "own_pools.zip");
	ck_assert_int_eq(system(command), 0);
	ck_assert_int_eq(chmod("tree/tools/gpupool-run", 0755), 0);
	run_make_library("tree/shim/libgpupool.so");
	ck_assert_int_eq(chmod("tree/shim/libgpupool.so", 0644), 0);
}

static int run_copied_program(void)
{
	const char *words[] = {"tree/tools/gpupool-run", "--own-pools=off", "env", NULL};

	return run_execute(words);
}

START_TEST(a_copied_program_uses_its_own_hook)
{
	char wanted[PATH_MAX];

	make_copied_programs();
	ck_assert_int_eq(run_copied_program(), 0);
	snprintf(wanted, sizeof(wanted), "PYTHONPATH=%s/tree/tools/own_pools.zip\n", run_directory);
	run_check_in(run_out, wanted);
}
END_TEST

START_TEST(a_hook_that_another_user_could_have_planted_is_not_used)
{
	make_copied_programs();
	ck_assert_int_eq(chmod("tree/tools/own_pools.zip", 0666), 0);
	ck_assert_int_eq(run_copied_program(), 125);
	run_check_in(run_err, "/tree/tools/own_pools.zip can be written to by other users.\n"
			      "             Next: correct the owner and the mode, ");
	run_check_in(run_err, "gpupool-run: cannot turn off the pools of CuPy and RMM: ");
}
END_TEST

START_TEST(own_pools_off_is_refused_if_the_hook_is_missing)
{
	make_copied_programs();
	ck_assert_int_eq(unlink("tree/tools/own_pools.zip"), 0);
	ck_assert_int_eq(run_copied_program(), 125);
	run_check_in(run_err, "/own_pools.zip: No such file or directory.\n"
			      "             Next: install gpupool again, ");
}
END_TEST

START_TEST(own_pools_off_is_refused_if_the_path_of_the_hook_has_a_colon)
{
	const char *words[] = {"a:b/tree/tools/gpupool-run", "--library=libgpupool.so", "--own-pools=off", "env", NULL};

	make_copied_programs();
	ck_assert_int_eq(mkdir("a:b", 0755), 0);
	ck_assert_int_eq(rename("tree", "a:b/tree"), 0);
	ck_assert_int_eq(run_execute(words), 125);
	run_check_in(run_err, "PYTHONPATH cannot name ");
}
END_TEST

void run_add_pools_tests(TCase *tc)
{
	tcase_add_test(tc, own_pools_off_sets_every_switch_and_says_so_in_one_line);
	tcase_add_test(tc, own_pools_on_sets_no_switch);
	tcase_add_loop_test(tc, a_switch_that_the_user_has_set_otherwise_is_refused, 0, GP_OWN_POOL_COUNT);
	tcase_add_test(tc, a_switch_that_would_do_harm_is_not_set_and_not_refused);
	tcase_add_test(tc, a_switch_that_the_user_has_set_to_the_same_effect_is_kept);
	tcase_add_test(tc, the_hook_comes_once_and_first_in_PYTHONPATH);
	tcase_add_test(tc, print_env_prints_the_switches_of_own_pools);
	tcase_add_test(tc, help_lists_every_switch_of_own_pools);
	tcase_add_test(tc, a_copied_program_uses_its_own_hook);
	tcase_add_test(tc, a_hook_that_another_user_could_have_planted_is_not_used);
	tcase_add_test(tc, own_pools_off_is_refused_if_the_hook_is_missing);
	tcase_add_test(tc, own_pools_off_is_refused_if_the_path_of_the_hook_has_a_colon);
}
