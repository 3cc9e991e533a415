/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Operations on the legacy stream that submit no work. Blocking streams wait for them nevertheless. */

#include <pthread.h>
#include <stdlib.h>

#include "api/gpupool.h"
#include "app_async.h"
#include "app_blocks.h"

static CUdeviceptr other;        /* memory for the operation */
static CUmemoryPool driver_pool; /* one that the driver serves */

static CUstream new_blocking(void)
{
	CUstream stream;

	APP_MUST(cuStreamCreate(&stream, 0));
	return stream;
}

static void free_beside_capture(void)
{
	CUstream capturing = app_stream();
	CUgraph graph;

	APP_MUST(cuStreamBeginCapture_v2(capturing, CU_STREAM_CAPTURE_MODE_RELAXED));
	APP_MUST(cuMemFreeAsync(other, NULL));
	APP_MUST(cuStreamEndCapture(capturing, &graph));
	APP_MUST(cuGraphDestroy(graph));
}

static void free_uncached(void)
{
	(void)gpupool_no_cache_begin();
	APP_MUST(cuMemFreeAsync(other, NULL));
	(void)gpupool_no_cache_end();
}

static void *free_in_thread(void *unused)
{
	APP_MUST(cuCtxSetCurrent(app_ctx));
	APP_MUST(cuMemFreeAsync(other, NULL));
	return NULL;
}

static void free_by_other_thread(void)
{
	pthread_t thread;

	pthread_create(&thread, NULL, free_in_thread, NULL);
	pthread_join(thread, NULL);
}

static void allocate_by_driver(void)
{
	CUdeviceptr ptr;

	APP_MUST(cuMemAllocFromPoolAsync(&ptr, MIB, driver_pool, NULL));
}

static void record_event(void)
{
	CUevent event;

	APP_MUST(cuEventCreate(&event, 0));
	APP_MUST(cuEventRecord(event, NULL));
}

/*
 * A block that work of one blocking stream uses is freed on another, after an operation on the legacy stream. That
 * operation waits for the work, and the free for the operation. A third stream uses the next block after the free: it
 * waits for an event, or the host waits. On a device where the record of an event is an operation, the host has to
 * wait, since the record would wait for the work, too.
 */
static void cross_by(void (*operation)(void), bool is_for_host)
{
	CUstream working, freed, last;
	CUdeviceptr ptr, next;
	CUevent event;

	working = new_blocking();
	freed = new_blocking();
	last = app_stream();
	APP_MUST(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	ptr = take(4 * MIB, freed);
	APP_MUST(cuMemFreeAsync(ptr, freed));
	ptr = take(4 * MIB, freed);
	APP_MUST(cuCtxSynchronize());
	app_spin_fill(working, ptr, 4 * KIB, 1, 50 * MS);
	operation();
	APP_MUST(cuMemFreeAsync(ptr, freed));
	next = take(4 * MIB, freed);
	if (is_for_host) {
		APP_MUST(cuStreamSynchronize(freed));
	} else {
		APP_MUST(cuEventRecord(event, freed));
		APP_MUST(cuStreamWaitEvent(last, event, 0));
	}
	app_fill(last, next, 4 * KIB, 2);
	APP_MUST(cuCtxSynchronize());
	app_result("wrong words", (int)app_count_wrong(last, next, 4 * KIB, 2));
	app_report_driver();
}

static void take_other(CUstream stream)
{
	other = take(MIB, stream);
	APP_MUST(cuStreamSynchronize(stream));
}

void crossed_beside_capture(void)
{
	app_start();
	take_other(app_stream());
	cross_by(free_beside_capture, false);
}

void crossed_uncached(void)
{
	app_start();
	take_other(app_stream());
	cross_by(free_uncached, false);
}

void crossed_by_driver(void)
{
	CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0},
		.maxSize = 64 * MIB};

	app_start();
	APP_MUST(cuMemPoolCreate(&driver_pool, &properties));
	cross_by(allocate_by_driver, false);
}

/* The block of the operation is of another context, and a thread without a cache frees it. */
void crossed_by_foreign(void)
{
	CUcontext ctx;

	app_start();
	APP_MUST(cuCtxCreate_v2(&ctx, 0, 0));
	take_other(app_stream());
	APP_MUST(cuCtxSetCurrent(app_ctx));
	cross_by(free_by_other_thread, false);
}

void crossed_by_event(void)
{
	app_start();
	cross_by(record_event, true);
}

/* A query fails while a block waits for its stream of another context. */
void elsewhere_with_fault(void)
{
	CUstream home_stream, busy;
	CUdeviceptr ptr, next;
	unsigned n_same = 0;
	CUcontext ctx;

	app_start();
	busy = app_stream();
	APP_MUST(cuCtxCreate_v2(&ctx, 0, 0));
	home_stream = app_stream();
	ptr = take(4 * MIB, home_stream);
	APP_MUST(cuStreamSynchronize(home_stream));
	APP_MUST(cuCtxSetCurrent(app_ctx));
	app_spin_fill(busy, ptr, 4 * KIB, 1, 50 * MS);
	APP_MUST(cuMemFreeAsync(ptr, busy));
	APP_MUST(cuCtxSetCurrent(ctx));
	app_fault(getenv("APP_FAULT"));
	for (unsigned i = 0; i < 8; i++) {
		next = take(4 * MIB, home_stream);
		APP_MUST(cuMemsetD32Async(next, 2, 16, home_stream));
		n_same += next == ptr;
	}
	app_fault(NULL);
	app_fact("handed out early", n_same);
	APP_MUST(cuCtxSynchronize());
	APP_MUST(cuCtxSetCurrent(app_ctx));
	app_result("end", cuCtxSynchronize());
	app_report_driver();
}

/* A call fails that gpupool makes for a free on a blocking stream of another context. */
void elsewhere_with_refusal(void)
{
	CUdeviceptr ptr;
	CUstream stream;
	CUcontext ctx;
	uint64_t used = 1;

	app_start();
	APP_MUST(cuCtxCreate_v2(&ctx, 0, 0));
	ptr = take(MIB, app_stream());
	APP_MUST(cuCtxSynchronize());
	APP_MUST(cuCtxSetCurrent(app_ctx));
	stream = new_blocking();
	app_fault("cuMemFreeAsync 1 2");
	app_result("free", cuMemFreeAsync(ptr, stream));
	app_fault(NULL);
	APP_MUST(cuCtxSynchronize());
	APP_MUST(cuMemPoolGetAttribute(default_pool(0), CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used));
	app_fact("bytes in use", used);
	app_report_driver();
}

/* The program unmaps memory in stream order, or takes its access away, as if it had mapped it. */
void misused(void)
{
	CUmemAccessDesc none = {.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
	CUstream stream;
	CUdeviceptr ptr;

	app_start();
	stream = app_stream();
	ptr = take(4 * MIB, stream);
	app_fill(stream, ptr, 4 * KIB, 1);
	APP_MUST(cuStreamSynchronize(stream));
	for (unsigned i = 0; i < 2; i++) {
		app_result("access", cuMemSetAccess(ptr, 4 * MIB, &none, 1));
		app_result("unmap", cuMemUnmap(ptr, 4 * MIB));
		app_result("addresses", cuMemAddressFree(ptr, 4 * MIB));
		if (i == 0)
			APP_MUST(cuMemFreeAsync(ptr, stream));
		APP_MUST(cuStreamSynchronize(stream));
	}
	ptr = take(4 * MIB, stream);
	app_fill(stream, ptr, 4 * KIB, 2);
	app_result("wrong words", (int)app_count_wrong(stream, ptr, 4 * KIB, 2));
	app_report_driver();
}

/* The driver refuses to destroy a pool, and the program goes on with it. */
void not_destroyed(void)
{
	CUmemPoolProps properties = {
		.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
	CUstream stream;
	CUmemoryPool pool;
	CUdeviceptr ptr[2];
	uint64_t used;

	app_start();
	stream = app_stream();
	APP_MUST(cuMemPoolCreate(&pool, &properties));
	APP_MUST(cuMemAllocFromPoolAsync(&ptr[0], 4 * MIB, pool, stream));
	app_fault("cuMemPoolDestroy 1 800");
	app_result("destroy", cuMemPoolDestroy(pool));
	app_fault(NULL);
	APP_MUST(cuMemAllocFromPoolAsync(&ptr[1], 4 * MIB, pool, stream));
	APP_MUST(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used));
	app_say("used", "%zu MiB", (size_t)(used / MIB));
	for (unsigned i = 0; i < LENGTH(ptr); i++)
		APP_MUST(cuMemFreeAsync(ptr[i], stream));
	app_result("destroy", cuMemPoolDestroy(pool));
	app_fact("by the driver", app_calls("cuMemAllocFromPoolAsync"));
	app_report_driver();
}
