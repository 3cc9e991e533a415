/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* The runtime's last error after an allocation that succeeds on a retry, and after an allocation that fails. */

#include "tests/preload/app.h"

#define GIB ((size_t)1 << 30)

enum { BLOCKS_MAX = 4096 };

static size_t free_bytes(void)
{
	size_t bytes = 0, total;

	APP_MUST(cudaMemGetInfo(&bytes, &total));
	return bytes;
}

/* Memory that is cached in one size is needed in another. */
static void cured(void)
{
	static const unsigned percent[] = {60, 75, 50, 90, 30, 80};
	size_t all = free_bytes();
	void *p;

	for (size_t i = 0; i < 4 * LENGTH(percent); i++) {
		size_t bytes = all / 100 * percent[i % LENGTH(percent)];

		app_result("malloc", cudaMalloc(&p, bytes));
		app_result("last error", cudaPeekAtLastError());
		APP_MUST(cudaMemset(p, 1, MIB));
		app_result("free", cudaFree(p));
		app_result("last error", cudaPeekAtLastError());
	}
}

static void not_cured(void)
{
	static void *ptr[BLOCKS_MAX];
	unsigned n = 0;
	cudaError_t error;
	void *p = &p;

	while (n < BLOCKS_MAX && !(error = cudaMalloc(&ptr[n], GIB)))
		n++;
	app_result("the allocation that fails", error);
	app_result("last error", cudaPeekAtLastError());
	app_result("last error, taken", cudaGetLastError());
	app_result("last error after that", cudaGetLastError());
	app_result("another 2 GiB", cudaMalloc(&p, 2 * GIB));
	printf("is NULL: %d\n", p == NULL);
	app_result("managed memory of SIZE_MAX / 4", cudaMallocManaged(&p, SIZE_MAX / 4, cudaMemAttachGlobal));
	cudaGetLastError();
	for (unsigned i = 0; i < n; i++)
		APP_MUST(cudaFree(ptr[i]));
	app_result("half as much in one block", cudaMalloc(&p, n / 2 * GIB));
	app_result("free", cudaFree(p));
	app_result("last error", cudaGetLastError());
}

const struct app_scenario app_scenarios[] = {
	{"cured", cured},
	{"not-cured", not_cured},
	{0},
};
