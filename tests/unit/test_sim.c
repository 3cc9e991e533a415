/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "test_sim.h"
#include "tests/suite.h"

CUcontext test_ctx;
struct test_kernels test_kernels;

void test_load_kernels(struct test_kernels *kernels)
{
	ok(cuModuleLoadData(&kernels->module, kernels_ptx));
	ok(cuModuleGetFunction(&kernels->fill, kernels->module, "fill"));
	ok(cuModuleGetFunction(&kernels->spin, kernels->module, "spin"));
	ok(cuModuleGetFunction(&kernels->spin_fill, kernels->module, "spin_fill"));
	ok(cuModuleGetFunction(&kernels->count_wrong, kernels->module, "count_wrong"));
	ok(cuModuleGetFunction(&kernels->set_flag, kernels->module, "set_flag"));
	ok(cuModuleGetFunction(&kernels->wait_flag, kernels->module, "wait_flag"));
}

void test_start(void)
{
	ok(cuInit(0));
	ok(cuDevicePrimaryCtxRetain(&test_ctx, 0));
	ok(cuCtxSetCurrent(test_ctx));
	test_load_kernels(&test_kernels);
}

void test_start_with(const char *option, const char *value)
{
	setenv(option, value, 1);
	test_start();
}

CUdeviceptr test_alloc(size_t bytes)
{
	CUdeviceptr ptr = 0;

	ok(cuMemAlloc_v2(&ptr, bytes));
	return ptr;
}

CUstream test_stream(unsigned flags)
{
	CUstream stream = NULL;

	ok(cuStreamCreate(&stream, flags));
	return stream;
}

CUevent test_event(void)
{
	CUevent event = NULL;

	ok(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	return event;
}

static CUresult launch(CUfunction function, CUstream stream, void **params)
{
	return cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL);
}

CUresult test_fill(CUstream stream, CUdeviceptr ptr, uint64_t words, uint32_t value)
{
	return launch(test_kernels.fill, stream, (void *[]){&ptr, &words, &value});
}

CUresult test_spin(CUstream stream, uint64_t ns)
{
	return launch(test_kernels.spin, stream, (void *[]){&ns});
}

CUresult test_spin_fill(CUstream stream, CUdeviceptr ptr, uint64_t words, uint32_t value, uint64_t ns)
{
	return launch(test_kernels.spin_fill, stream, (void *[]){&ptr, &words, &value, &ns});
}

CUresult test_count_wrong(CUstream stream, CUdeviceptr ptr, uint64_t words, uint32_t expected, CUdeviceptr result)
{
	return launch(test_kernels.count_wrong, stream, (void *[]){&ptr, &words, &expected, &result});
}

CUresult test_set_flag(CUstream stream, CUdeviceptr ptr, uint32_t value)
{
	return launch(test_kernels.set_flag, stream, (void *[]){&ptr, &value});
}

CUresult test_wait_flag(CUstream stream, CUdeviceptr ptr, uint32_t value)
{
	return launch(test_kernels.wait_flag, stream, (void *[]){&ptr, &value});
}

uint32_t test_word(CUdeviceptr ptr)
{
	uint32_t word = 0;

	ok(cuCtxSynchronize());
	ok(cuMemcpyDtoH_v2(&word, ptr, sizeof(word)));
	return word;
}

int test_run(const char *name, TCase *(*const *cases)(void), size_t n)
{
	Suite *suite = suite_create(name);

	for (size_t i = 0; i < n; i++)
		suite_add_tcase(suite, cases[i]());
	return suite_run(suite);
}
