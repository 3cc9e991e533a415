/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Allocations in stream order: which of them reach the driver, and what becomes of their memory. */

#include "app_driver.h"
#include "tests/sim/abi.h"

enum { LOOPS = 200 };

static CUdeviceptr take(size_t bytes, CUstream stream)
{
	CUdeviceptr ptr = 0;

	APP_MUST(cuMemAllocAsync(&ptr, bytes, stream));
	return ptr;
}

static uint64_t calls_of_driver(void)
{
	return app_calls("cuMemAllocAsync") + app_calls("cuMemAllocFromPoolAsync") + app_calls("cuMemAllocAsync_ptsz");
}

static CUmemoryPool default_pool(int device)
{
	CUmemoryPool pool = NULL;

	APP_MUST(cuDeviceGetDefaultMemPool(&pool, device));
	return pool;
}

/* A pair again and again, each with work that has not ended when the block is freed. */
static void loop(CUstream stream, bool is_waiting)
{
	CUdeviceptr first = take(MIB, stream), ptr = first;
	uint64_t n_other = 0;

	for (unsigned i = 0; i < LOOPS; i++) {
		app_spin_fill(stream, ptr, 4 * KIB, i, MS / 100);
		APP_MUST(cuMemFreeAsync(ptr, stream));
		if (is_waiting)
			APP_MUST(cuStreamSynchronize(stream));
		ptr = take(MIB, stream);
		n_other += ptr != first;
	}
	app_result("wrong words", (int)app_count_wrong(stream, ptr, 0, 0));
	APP_MUST(cuMemFreeAsync(ptr, stream));
	app_fact("other addresses", n_other);
	app_fact("by the driver", calls_of_driver());
	app_fact_calls("cuMemAlloc_v2");
	app_fact_calls("cuCtxRecordEvent");
	app_fact_calls("cuCtxWaitEvent");
	app_fact_calls("cuEventQuery");
	app_fact_calls("cuEventRecord");
	app_report_driver();
}

static void created(void)
{
	app_start();
	loop(app_stream(), false);
}

static void created_idle(void)
{
	app_start();
	loop(app_stream(), true);
}

static void blocking(void)
{
	CUstream stream;

	app_start();
	APP_MUST(cuStreamCreate(&stream, 0));
	loop(stream, false);
}

static void legacy(void)
{
	app_start();
	loop(NULL, false);
}

static void per_thread(void)
{
	app_start();
	loop(CU_STREAM_PER_THREAD, false);
}

/* A stream gets no block that another one has freed and still works on. */
static void streams(void)
{
	CUstream first, second;
	CUdeviceptr a, b;

	app_start();
	first = app_stream();
	second = app_stream();
	a = take(MIB, first);
	app_spin_fill(first, a, 4 * KIB, 1, 50 * MS);
	APP_MUST(cuMemFreeAsync(a, first));
	b = take(MIB, second);
	app_fact("same block while the stream works", b == a);
	APP_MUST(cuMemFreeAsync(b, second));
	APP_MUST(cuCtxSynchronize());
	APP_MUST(cuStreamDestroy_v2(first));
	APP_MUST(cuStreamDestroy_v2(second));
	first = app_stream();
	for (unsigned i = 0; i < 8; i++)
		APP_MUST(cuMemFreeAsync(take((i + 2) * MIB, first), first));
	APP_MUST(cuCtxSynchronize());
	b = take(2 * MIB, first);
	APP_MUST(cuCtxSynchronize());
	app_fact("by the driver", calls_of_driver());
	app_pause("end");
	app_report_driver();
}

/*
 * Kernels that may begin before earlier work of their stream has ended write to new blocks. is_first: such a kernel is
 * launched before anything is freed in stream order.
 */
static void early(bool is_first)
{
	CUdeviceptr kept;
	CUstream stream;
	size_t wrong = 0;

	app_start();
	stream = app_stream();
	kept = app_alloc(4 * KIB);
	if (is_first)
		app_fill_early(stream, kept, 4 * KIB, 1);
	for (unsigned i = 0; i < 20; i++) {
		CUdeviceptr a = take(MIB, stream), b;

		app_spin_fill(stream, a, 4 * KIB, 1, MS);
		APP_MUST(cuMemFreeAsync(a, stream));
		b = take(MIB, stream);
		app_fill_early(stream, b, 4 * KIB, i + 2);
		wrong += app_count_wrong(stream, b, 4 * KIB, i + 2);
		APP_MUST(cuMemFreeAsync(b, stream));
	}
	app_result("wrong words", (int)wrong);
	app_fact("by the driver", calls_of_driver());
	app_report_driver();
}

static void early_first(void)
{
	early(true);
}

static void early_later(void)
{
	early(false);
}

/* A stream is destroyed while its work runs, and a new one has its handle. */
static void recycled(void)
{
	CUstream first, stream;
	CUdeviceptr a, b;

	app_start();
	stream = first = app_stream();
	a = take(MIB, first);
	app_spin_fill(first, a, 4 * KIB, 1, 1000 * MS);
	APP_MUST(cuMemFreeAsync(a, first));
	for (unsigned i = 0; i < 1000; i++) {
		APP_MUST(cuStreamDestroy_v2(stream));
		stream = app_stream();
		if (stream == first)
			break;
	}
	app_fact("same handle", stream == first);
	b = take(MIB, stream);
	app_fact("same block", a == b);
	app_fill(stream, b, 4 * KIB, 2);
	APP_MUST(cuCtxSynchronize());
	app_result("wrong words", (int)app_count_wrong(stream, b, 4 * KIB, 2));
	app_report_driver();
}

/* Cases in which an allocation stays with the driver. */

static void by_driver(CUstream stream)
{
	uint64_t before = calls_of_driver();
	CUdeviceptr ptr = take(MIB, stream);

	app_fill(stream, ptr, 4 * KIB, 1);
	app_fact("by the driver", calls_of_driver() - before);
	app_result("free", cuMemFreeAsync(ptr, stream));
	APP_MUST(cuCtxSynchronize());
}

static void usual(void)
{
	app_start();
	by_driver(app_stream());
}

static void usual_legacy(void)
{
	app_start();
	by_driver(NULL);
}

static void other_context(void)
{
	CUstream stream;
	CUcontext ctx;

	app_start();
	stream = app_stream();
	APP_MUST(cuMemFreeAsync(take(MIB, stream), stream));
	APP_MUST(cuCtxCreate_v2(&ctx, 0, 0));
	APP_MUST(cuCtxSetCurrent(app_ctx));
	by_driver(stream);
}

static void chosen_pool(void)
{
	const CUmemPoolProps properties = {
		.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0},
	};
	CUmemoryPool pool;

	app_start();
	APP_MUST(cuMemPoolCreate(&pool, &properties));
	APP_MUST(cuDeviceSetMemPool(0, pool));
	by_driver(app_stream());
}

static void opened_pool(void)
{
	const CUmemAccessDesc access = {
		.location = {CU_MEM_LOCATION_TYPE_DEVICE, 1},
		.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
	};

	app_start();
	APP_MUST(cuMemPoolSetAccess(default_pool(0), &access, 1));
	by_driver(app_stream());
}

static void capture(void)
{
	CUstream stream, captured;
	CUgraph graph;

	app_start();
	stream = app_stream();
	captured = app_stream();
	APP_MUST(cuStreamBeginCapture_v2(captured, CU_STREAM_CAPTURE_MODE_RELAXED));
	APP_MUST(cuMemFreeAsync(take(MIB, stream), stream));
	app_fact("during the capture", calls_of_driver());
	APP_MUST(cuStreamEndCapture(captured, &graph));
	by_driver(stream);
}

static void until_full(void)
{
	CUdeviceptr blocks[64], more;
	CUstream streams[2];
	unsigned n = 0;
	CUresult r;

	app_start();
	streams[0] = app_stream();
	streams[1] = app_stream();
	while ((r = cuMemAllocAsync(&blocks[n], 8 * MIB, streams[n % 2])) == CUDA_SUCCESS && n < LENGTH(blocks) - 1)
		n++;
	app_result("refused with", r);
	app_result("pointer", (int)blocks[n]);
	app_fact("blocks", n);
	app_fill(streams[0], blocks[0], 4 * KIB, 1);
	APP_MUST(cuMemFreeAsync(blocks[0], streams[0]));
	APP_MUST(cuStreamSynchronize(streams[0]));
	app_result("on the other stream", cuMemAllocAsync(&more, 8 * MIB, streams[1]));
	app_fill(streams[1], more, 4 * KIB, 2);
	APP_MUST(cuCtxSynchronize());
	app_result("wrong words", (int)app_count_wrong(streams[1], more, 4 * KIB, 2));
	app_report_driver();
}

static void held(void)
{
	CUstream stream;

	app_start();
	stream = app_stream();
	(void)take(3 * MIB, stream);
	APP_MUST(cuMemFreeAsync(take(MIB, stream), stream));
	app_pause("held");
}

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
	app_fact("memory from the driver", app_calls("cuMemAlloc_v2"));
	app_report_driver();
}

static void elsewhere(void)
{
	free_elsewhere(false, false, false);
}

static void elsewhere_legacy(void)
{
	free_elsewhere(true, false, true);
}

static void elsewhere_blocking(void)
{
	free_elsewhere(true, true, false);
}

/* A context ends while blocks wait for its stream. */
static void elsewhere_ended(void)
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

const struct app_scenario app_scenarios[] = {
	{"created", created},
	{"created-idle", created_idle},
	{"blocking", blocking},
	{"legacy", legacy},
	{"per-thread", per_thread},
	{"streams", streams},
	{"early-first", early_first},
	{"early-later", early_later},
	{"recycled", recycled},
	{"usual", usual},
	{"usual-legacy", usual_legacy},
	{"other-context", other_context},
	{"chosen-pool", chosen_pool},
	{"opened-pool", opened_pool},
	{"capture", capture},
	{"until-full", until_full},
	{"held", held},
	{"elsewhere", elsewhere},
	{"elsewhere-legacy", elsewhere_legacy},
	{"elsewhere-blocking", elsewhere_blocking},
	{"elsewhere-ended", elsewhere_ended},
	{0},
};
