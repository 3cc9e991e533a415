/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Memory of the pool beside other contexts: freed on their streams, or in use as one is created. */

#include "app_async.h"

/*
 * Device 1 reads memory of device 0 on one of its streams, and frees it on the same stream, or on one that waits for
 * the first, before the copy has begun. The next owner on device 0 must not touch it before the copy has ended.
 */
static void free_elsewhere(bool is_blocking, bool is_copied_on_legacy, bool is_freed_on_legacy)
{
	CUcontext away;
	CUstream home_stream, away_stream, copy_stream, free_stream;
	CUdeviceptr copy, first = 0;
	size_t wrong = 0;
	unsigned n_same = 0;

	app_start();
	home_stream = app_stream();
	APP_MUST(cuDevicePrimaryCtxRetain(&away, 1));
	APP_MUST(cuCtxSetCurrent(away));
	APP_MUST(cuCtxEnablePeerAccess(app_ctx, 0));
	APP_MUST(cuStreamCreate(&away_stream, is_blocking ? 0 : CU_STREAM_NON_BLOCKING));
	copy_stream = is_copied_on_legacy ? NULL : away_stream;
	free_stream = is_freed_on_legacy ? NULL : away_stream;
	copy = app_alloc(64 * KIB);
	for (unsigned i = 0; i < 20; i++) {
		CUdeviceptr ptr, next;

		APP_MUST(cuCtxSetCurrent(app_ctx));
		ptr = take(MIB, home_stream);
		n_same += ptr == first;
		first = ptr;
		app_fill(home_stream, ptr, 64 * KIB, i);
		APP_MUST(cuStreamSynchronize(home_stream));
		APP_MUST(cuCtxSetCurrent(away));
		APP_MUST(cuMemsetD32Async(copy, 0, 16 * KIB, copy_stream));
		APP_MUST(cuMemcpyPeerAsync(copy, away, ptr, app_ctx, 64 * KIB, copy_stream));
		APP_MUST(cuMemFreeAsync(ptr, free_stream));
		APP_MUST(cuCtxSetCurrent(app_ctx));
		next = take(MIB, home_stream);
		app_fill(home_stream, next, 64 * KIB, ~i);
		wrong += app_count_wrong(home_stream, next, 64 * KIB, ~i);
		APP_MUST(cuMemFreeAsync(next, home_stream));
		app_result("free again", cuMemFreeAsync(ptr, home_stream) != 0);
		APP_MUST(cuCtxSetCurrent(away));
		APP_MUST(cuCtxSynchronize());
	}
	app_result("wrong words", (int)wrong);
	app_fact("by the driver", calls_of_driver());
	app_fact("memory from the driver", app_calls("cuMemAlloc_v2") + app_calls("cuMemCreate"));
	app_report_driver();
}

void elsewhere(void)
{
	free_elsewhere(false, false, false);
}

void elsewhere_legacy(void)
{
	free_elsewhere(true, false, true);
}

void elsewhere_blocking(void)
{
	free_elsewhere(true, true, false);
}

/* A context ends while blocks wait for its stream. */
void elsewhere_ended(void)
{
	CUcontext away;
	CUstream stream, away_stream;
	CUdeviceptr ptr;

	app_start();
	stream = app_stream();
	ptr = take(MIB, stream);
	APP_MUST(cuStreamSynchronize(stream));
	APP_MUST(cuDevicePrimaryCtxRetain(&away, 1));
	APP_MUST(cuCtxSetCurrent(away));
	APP_MUST(cuCtxEnablePeerAccess(app_ctx, 0));
	away_stream = app_stream();
	APP_MUST(cuMemFreeAsync(ptr, away_stream));
	APP_MUST(cuDevicePrimaryCtxReset_v2(1));
	APP_MUST(cuCtxSetCurrent(app_ctx));
	ptr = take(MIB, stream);
	app_result("free", cuMemFreeAsync(ptr, stream));
	APP_MUST(cuCtxSynchronize());
	app_report_driver();
}

static void fill_device(void)
{
	CUdeviceptr ptr;

	for (size_t bytes = 1024 * MIB; bytes >= 512;)
		if (cuMemAlloc_v2(&ptr, bytes))
			bytes /= 2;
}

static int kib_of(CUmemoryPool pool, int attribute)
{
	uint64_t bytes = 0;

	APP_MUST(cuMemPoolGetAttribute(pool, attribute, &bytes));
	return (int)(bytes / KIB);
}

/* Memory goes back to its pool by a stream of a device that has none left. */
void elsewhere_full(void)
{
	CUmemoryPool pool;
	CUstream stream;
	CUdeviceptr ptr;
	CUcontext away;

	app_start();
	stream = app_stream();
	pool = default_pool(0);
	ptr = take(8 * MIB, stream);
	APP_MUST(cuStreamSynchronize(stream));
	APP_MUST(cuDevicePrimaryCtxRetain(&away, 1));
	APP_MUST(cuCtxSetCurrent(away));
	APP_MUST(cuCtxEnablePeerAccess(app_ctx, 0));
	fill_device();
	app_result("free", cuMemFreeAsync(ptr, NULL));
	APP_MUST(cuCtxSynchronize());
	app_result("KiB used", kib_of(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT));
	APP_MUST(cuMemPoolTrimTo(pool, 0));
	APP_MUST(cuCtxSetCurrent(app_ctx));
	APP_MUST(cuCtxSynchronize());
	app_result("KiB reserved", kib_of(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT));
	app_report_driver();
}
