/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "app_driver.h"

#include "tests/apps/kernels.h"

CUcontext app_ctx;

static CUfunction fill, spin, spin_fill, wait_flag, count_wrong;

void app_start(void)
{
	CUmodule module;

	APP_MUST(cuInit(0));
	APP_MUST(cuDevicePrimaryCtxRetain(&app_ctx, 0));
	APP_MUST(cuCtxSetCurrent(app_ctx));
	APP_MUST(cuModuleLoadData(&module, kernels_ptx));
	APP_MUST(cuModuleGetFunction(&fill, module, "fill"));
	APP_MUST(cuModuleGetFunction(&spin, module, "spin"));
	APP_MUST(cuModuleGetFunction(&spin_fill, module, "spin_fill"));
	APP_MUST(cuModuleGetFunction(&wait_flag, module, "wait_flag"));
	APP_MUST(cuModuleGetFunction(&count_wrong, module, "count_wrong"));
}

static CUcontext created; /* APP_CREATED */

void app_start_owner(void)
{
	app_start();
	if (getenv("APP_CREATED"))
		APP_MUST(cuCtxCreate_v2(&created, 0, 0));
}

void app_end_owner(void)
{
	if (!created) {
		APP_MUST(cuDevicePrimaryCtxReset_v2(0));
		app_start();
		return;
	}
	APP_MUST(cuCtxDestroy_v2(created));
	created = NULL;
	APP_MUST(cuCtxSetCurrent(app_ctx));
}

CUdeviceptr app_alloc(size_t bytes)
{
	CUdeviceptr ptr = 0;

	APP_MUST(cuMemAlloc_v2(&ptr, bytes));
	return ptr;
}

CUstream app_stream(void)
{
	CUstream stream = NULL;

	APP_MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	return stream;
}

static void launch(CUfunction function, CUstream stream, void **params)
{
	APP_MUST(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL));
}

void app_fill(CUstream stream, CUdeviceptr ptr, size_t bytes, uint32_t value)
{
	uint64_t words = bytes / 4;

	launch(fill, stream, (void *[]){&ptr, &words, &value});
}

static void fill_ex(CUstream stream, CUdeviceptr ptr, size_t bytes, uint32_t value, bool may_begin_early)
{
	CUlaunchAttribute attribute = {.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION};
	CUlaunchConfig config = {1, 1, 1, 1, 1, 1, .hStream = stream, .attrs = &attribute, .numAttrs = 1};
	uint64_t words = bytes / 4;

	attribute.value.programmaticStreamSerializationAllowed = may_begin_early;
	APP_MUST(cuLaunchKernelEx(&config, fill, (void *[]){&ptr, &words, &value}, NULL));
}

void app_fill_ex(CUstream stream, CUdeviceptr ptr, size_t bytes, uint32_t value)
{
	fill_ex(stream, ptr, bytes, value, false);
}

void app_fill_early(CUstream stream, CUdeviceptr ptr, size_t bytes, uint32_t value)
{
	fill_ex(stream, ptr, bytes, value, true);
}

void app_spin(CUstream stream, uint64_t ns)
{
	launch(spin, stream, (void *[]){&ns});
}

void app_spin_until(CUstream stream, const uint32_t *flag, uint32_t value)
{
	CUdeviceptr ptr = (CUdeviceptr)(uintptr_t)flag;

	launch(wait_flag, stream, (void *[]){&ptr, &value});
}

void app_spin_fill(CUstream stream, CUdeviceptr ptr, size_t bytes, uint32_t value, uint64_t ns)
{
	uint64_t words = bytes / 4;

	launch(spin_fill, stream, (void *[]){&ptr, &words, &value, &ns});
}

void app_add_wrong(CUstream stream, CUdeviceptr ptr, size_t bytes, uint32_t value, CUdeviceptr sum)
{
	uint64_t words = bytes / 4;

	launch(count_wrong, stream, (void *[]){&ptr, &words, &value, &sum});
}

size_t app_count_wrong(CUstream stream, CUdeviceptr ptr, size_t bytes, uint32_t value)
{
	/* In pieces, since the first access to a page of fresh memory costs more than a copy to it. */
	size_t piece_bytes = bytes < 64 * KIB ? bytes : 64 * KIB, at = 0, wrong = 0;
	uint32_t *words = malloc(piece_bytes);

	if (!words)
		exit(71);
	do {
		size_t n = bytes - at < piece_bytes ? bytes - at : piece_bytes;

		APP_MUST(cuMemcpyDtoHAsync_v2(words, ptr + at, n, stream));
		APP_MUST(cuStreamSynchronize(stream));
		at += n;
		/* The C library finds the usual answer faster, most of all under a sanitiser. */
		if (n >= 4 && words[0] == value && memcmp(words, words + 1, n / 4 * 4 - 4) == 0)
			continue;
		for (size_t i = 0; i < n / 4; i++)
			wrong += words[i] != value;
	} while (at < bytes);
	free(words);
	return wrong;
}
