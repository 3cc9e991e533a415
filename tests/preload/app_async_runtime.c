/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Allocations in stream order through the runtime, built with the shared runtime and with the static one. */

#include "app.h"
#include "tests/apps/cudart_min.h"

cudaError_t cudaMallocAsync_ptsz(void **ptr, size_t bytes, cudaStream_t stream);
cudaError_t cudaFreeAsync_ptsz(void *ptr, cudaStream_t stream);
cudaError_t cudaMallocFromPoolAsync_ptsz(void **ptr, size_t bytes, cudaMemPool_t pool, cudaStream_t stream);

enum { PAIRS = 100 };

static unsigned n_asked;

/* An allocation by one of the runtime's functions. pool: NULL for the current pool. */
static void *take(cudaMemPool_t pool, cudaStream_t stream, bool is_per_thread)
{
	void *ptr = NULL;

	n_asked++;
	if (pool)
		APP_MUST(is_per_thread ? cudaMallocFromPoolAsync_ptsz(&ptr, MIB, pool, stream)
				       : cudaMallocFromPoolAsync(&ptr, MIB, pool, stream));
	else
		APP_MUST(is_per_thread ? cudaMallocAsync_ptsz(&ptr, MIB, stream) : cudaMallocAsync(&ptr, MIB, stream));
	return ptr;
}

static void give(void *ptr, cudaStream_t stream, bool is_per_thread)
{
	APP_MUST(is_per_thread ? cudaFreeAsync_ptsz(ptr, stream) : cudaFreeAsync(ptr, stream));
}

static void make_pairs(cudaMemPool_t pool, cudaStream_t stream, bool is_per_thread)
{
	for (unsigned i = 0; i < PAIRS; i++) {
		void *ptr = take(pool, stream, is_per_thread);

		APP_MUST(cudaMemsetAsync(ptr, (int)i, 4 * KIB, stream));
		give(ptr, stream, is_per_thread);
	}
}

static void report(void)
{
	app_fact("asked", n_asked);
	app_fact("by the driver", app_calls("cuMemAllocAsync") + app_calls("cuMemAllocAsync_ptsz") +
					  app_calls("cuMemAllocFromPoolAsync") +
					  app_calls("cuMemAllocFromPoolAsync_ptsz"));
	app_report_driver();
	app_pause("left");
	app_result("free", 0);
}

static cudaStream_t new_stream(void)
{
	cudaStream_t stream;

	APP_MUST(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
	return stream;
}

/* The first calls of programs differ: with or without cudaSetDevice, and cudaFree(NULL) for the context. */
static void pairs(void)
{
	make_pairs(NULL, new_stream(), false);
	report();
}

static void pairs_after_set_device(void)
{
	APP_MUST(cudaSetDevice(0));
	APP_MUST(cudaFree(NULL));
	make_pairs(NULL, NULL, false);
	report();
}

static void pairs_per_thread(void)
{
	make_pairs(NULL, NULL, true);
	make_pairs(NULL, cudaStreamPerThread, false);
	report();
}

/* With a raised release threshold, as nearly all programs have it. */
static void pairs_from_default_pool(void)
{
	uint64_t threshold = UINT64_MAX;
	cudaMemPool_t pool;

	APP_MUST(cudaDeviceGetDefaultMemPool(&pool, 0));
	APP_MUST(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &threshold));
	make_pairs(pool, new_stream(), false);
	make_pairs(pool, NULL, true);
	report();
}

/* Makes both contexts current before it allocates in either. */
static void pairs_on_two_devices(void)
{
	cudaStream_t streams[2];

	for (int i = 0; i < 2; i++) {
		APP_MUST(cudaSetDevice(i));
		streams[i] = new_stream();
	}
	for (int i = 1; i >= 0; i--) {
		APP_MUST(cudaSetDevice(i));
		make_pairs(NULL, streams[i], false);
	}
	report();
}

static void pairs_after_reset(void)
{
	make_pairs(NULL, NULL, false);
	APP_MUST(cudaDeviceReset());
	n_asked = 0;
	make_pairs(NULL, new_stream(), false);
	report();
}

const struct app_scenario app_scenarios[] = {
	{"pairs", pairs},
	{"pairs-after-set-device", pairs_after_set_device},
	{"pairs-per-thread", pairs_per_thread},
	{"pairs-from-default-pool", pairs_from_default_pool},
	{"pairs-on-two-devices", pairs_on_two_devices},
	{"pairs-after-reset", pairs_after_reset},
	{0},
};
