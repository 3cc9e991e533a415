/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Frameworks with their own pool of memory, which the library knows by the libraries that ask for memory. */

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "play.h"

static void keep_status(const char *name)
{
	play_keep(play_ask("status"));
}

static void check_in(const char *text, const char *part)
{
	ck_assert_msg(strstr(text, part), "expected '%s' in: %s", part, text);
}

/* Makes copies of the library that allocates, at the paths of a list that colons separate. */
static void make_libraries(const char *list)
{
	char paths[512], command[2 * PATH_MAX];

	snprintf(paths, sizeof(paths), "%s", list);
	for (char *path = strtok(paths, ":"); path; path = strtok(NULL, ":")) {
		snprintf(command, sizeof(command), "mkdir -p \"$(dirname '%s')\" && cp '%s/libcaller.so' '%s'", path,
			play_app_dir, path);
		ck_assert_int_eq(system(command), 0);
	}
}

/* Returns the member "frameworks" of the program's status. */
static const char *frameworks_of(const char *scenario, const char *libraries, const char *variable)
{
	static char found[1024];
	char setting[600];
	const char *const env[] = {setting, "GPUPOOL_REPORT=exit", variable, NULL};
	const char *start, *end;

	snprintf(setting, sizeof(setting), "LIBRARIES=%s", libraries);
	make_libraries(libraries);
	play_run(&(struct play){.program = "app_frameworks",
		.words = {scenario},
		.env = env,
		.preload = play_library,
		.at_pause = keep_status});
	ck_assert_msg(play_status == 0, "expected exit status 0, got %d: %s%s", play_status, play_out, play_err);
	start = strstr(play_answers[0], "\"frameworks\":[");
	ck_assert_msg(start, "expected frameworks in: %s", play_answers[0]);
	start += strlen("\"frameworks\":[");
	end = strchr(start, ']');
	snprintf(found, sizeof(found), "%.*s", (int)(end - start), start);
	return found;
}

static const struct {
	const char *path, *variable, *framework, *own_pool;
} rows[] = {
	{"./torch/lib/libc10_cuda.so", NULL, "PyTorch", "true"},
	{"./torch/lib/libc10_cuda.so", "PYTORCH_NO_CUDA_MEMORY_CACHING=1", "PyTorch", "false"},
	{"./torch/lib/libc10_cuda.so", "PYTORCH_NO_CUDA_MEMORY_CACHING=", "PyTorch", "true"},
	{"./jax_plugins/xla_cuda12/xla_cuda_plugin.so", "XLA_PYTHON_CLIENT_PREALLOCATE=false", "JAX", "true"},
	{"./jax_plugins/xla_cuda12/xla_cuda_plugin.so", "XLA_PYTHON_CLIENT_ALLOCATOR=platform", "JAX", "false"},
	{"./jaxlib/xla_extension.so", "XLA_PYTHON_CLIENT_ALLOCATOR=bfc", "JAX", "true"},
	{"./tensorflow/libtensorflow_framework.so.2", NULL, "TensorFlow", "true"},
	{"./tensorflow/libtensorflow_cc.so.2", "TF_GPU_ALLOCATOR=cuda_malloc_async", "TensorFlow", "true"},
	{"./tensorflow/libtensorflow_cc.so.2", "TF_GPU_ALLOCATOR=cuda_malloc", "TensorFlow", "false"},
	{"./cupy_backends/cuda/api/runtime.abi3.so", NULL, "CuPy", "true"},
	{"./cupy_backends/cuda/api/runtime.abi3.so", "GPUPOOL_OWN_POOLS=off", "CuPy", "false"},
	{"./librmm/lib64/librmm.so", NULL, "RMM", "null"},
	{"./librmm/lib64/librmm.so", "GPUPOOL_OWN_POOLS=off", "RMM", "false"},
};

START_TEST(a_framework_whose_library_allocates_is_named_with_the_state_of_its_pool)
{
	const char *found = frameworks_of("allocate", rows[_i].path, rows[_i].variable);
	bool is_in_front = !strcmp(rows[_i].own_pool, "true");
	char wanted[256];

	snprintf(wanted, sizeof(wanted), "{\"name\":\"%s\",\"library\":\"%s\",\"own_pool\":%s,\"switch\":%s",
		rows[_i].framework, strrchr(rows[_i].path, '/') + 1, rows[_i].own_pool,
		strcmp(rows[_i].framework, "JAX") ? "\"" : "null");
	check_in(found, wanted);
	ck_assert_ptr_null(strstr(found, "},{"));
	snprintf(wanted, sizeof(wanted), "  %s's own pool was in front of gpupool%s\n", rows[_i].framework,
		strcmp(rows[_i].framework, "JAX") ? " (gpupool-run --own-pools=off turns it off)" : "");
	ck_assert_msg(!strstr(play_err, wanted) == !is_in_front, "expected %sthe line in: %s",
		is_in_front ? "" : "no trace of ", play_err);
}
END_TEST

START_TEST(a_framework_that_does_not_allocate_is_not_named)
{
	ck_assert_str_eq(frameworks_of("load", "./torch/lib/libc10_cuda.so", NULL), "");
	ck_assert_ptr_null(strstr(play_err, "own pool"));
}
END_TEST

START_TEST(a_framework_that_compiles_its_code_is_named_once_its_library_is_loaded)
{
	check_in(frameworks_of("load", "./julia/libjulia.so.1", NULL),
		"{\"name\":\"CUDA.jl\",\"library\":\"libjulia.so\",\"own_pool\":true,"
		"\"switch\":\"JULIA_CUDA_MEMORY_POOL=none\"}");
	check_in(play_err, "  CUDA.jl's own pool was in front of gpupool (");
}
END_TEST

START_TEST(a_program_without_frameworks_names_none)
{
	ck_assert_str_eq(frameworks_of("allocate", "./lib/libcaller.so", NULL), "");
	ck_assert_ptr_null(strstr(play_err, "own pool"));
}
END_TEST

START_TEST(a_framework_whose_pool_can_be_turned_off_is_reported_before_one_that_keeps_it)
{
	frameworks_of("allocate", "./jaxlib/xla_extension.so:./cupy_backends/cuda/api/runtime.abi3.so", NULL);
	check_in(play_err, "  CuPy's own pool was in front of gpupool (");
	ck_assert_ptr_null(strstr(play_err, "JAX's"));
}
END_TEST

START_TEST(several_frameworks_in_one_process_are_all_named)
{
	const char *found =
		frameworks_of("allocate", "./torch/lib/libc10_cuda.so:./cupy_backends/cuda/api/runtime.abi3.so", NULL);

	check_in(found, "{\"name\":\"PyTorch\",");
	check_in(found, "},{\"name\":\"CuPy\",");
}
END_TEST

START_TEST(the_summary_at_exit_advises_to_turn_the_own_pool_off)
{
	static const char *const env[] = {"LIBRARIES=./torch/lib/libc10_cuda.so", "GPUPOOL_REPORT=summary", NULL};

	make_libraries("./torch/lib/libc10_cuda.so");
	play_run(&(struct play){
		.program = "app_frameworks", .words = {"allocate"}, .env = env, .preload = play_library});
	check_in(play_err, "  advice          PyTorch's own pool was in front of gpupool (gpupool-run --own-pools=off");
}
END_TEST

static void add(TCase *tc)
{
	tcase_add_loop_test(
		tc, a_framework_whose_library_allocates_is_named_with_the_state_of_its_pool, 0, LENGTH(rows));
	tcase_add_test(tc, a_framework_that_does_not_allocate_is_not_named);
	tcase_add_test(tc, a_framework_that_compiles_its_code_is_named_once_its_library_is_loaded);
	tcase_add_test(tc, a_program_without_frameworks_names_none);
	tcase_add_test(tc, a_framework_whose_pool_can_be_turned_off_is_reported_before_one_that_keeps_it);
	tcase_add_test(tc, several_frameworks_in_one_process_are_all_named);
	tcase_add_test(tc, the_summary_at_exit_advises_to_turn_the_own_pool_off);
}

int main(int argc, char **argv)
{
	return play_main(argc, argv, &(struct play_tests){"frameworks", add}, 1);
}
