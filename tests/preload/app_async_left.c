/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Allocations in stream order that the pool may not be able to serve: by their pool, context, stream or size, and in
 * captures. The test knows which of them stay with the driver.
 */

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <unistd.h>

#include "api/gpupool.h"
#include "app_async.h"
#include "pool/account.h"

static void report_left(uint64_t before)
{
	app_fact("by the driver", calls_of_driver() - before);
	app_fact("asked", n_asked);
	app_pause("left");
}

static void by_driver(CUstream stream)
{
	uint64_t before = calls_of_driver();
	CUdeviceptr ptr = take(MIB, stream);

	app_fill(stream, ptr, 4 * KIB, 1);
	report_left(before);
	app_result("free", cuMemFreeAsync(ptr, stream));
	APP_MUST(cuCtxSynchronize());
}

void usual(void)
{
	app_start();
	by_driver(app_stream());
}

void usual_legacy(void)
{
	app_start();
	by_driver(NULL);
}

void other_context(void)
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

static CUmemoryPool new_pool_as(CUmemPoolProps properties)
{
	CUmemoryPool pool = NULL;

	properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
	properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
	APP_MUST(cuMemPoolCreate(&pool, &properties));
	return pool;
}

static CUmemoryPool new_pool(void)
{
	return new_pool_as((CUmemPoolProps){0});
}

void chosen_pool(void)
{
	app_start();
	APP_MUST(cuDeviceSetMemPool(0, new_pool()));
	by_driver(app_stream());
}

void chosen_pool_of_max(void)
{
	app_start();
	APP_MUST(cuDeviceSetMemPool(0, new_pool_as((CUmemPoolProps){.maxSize = 64 * MIB})));
	by_driver(app_stream());
}

void chosen_by_location(void)
{
	CUmemLocation location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
	CUstream stream;

	app_start();
	stream = app_stream();
	APP_MUST(cuMemFreeAsync(take(MIB, stream), stream));
	APP_MUST(cuMemSetMemPool(&location, CU_MEM_ALLOCATION_TYPE_PINNED, new_pool()));
	by_driver(stream);
}

/* The default pool is current again once the chosen one is destroyed. */
void chosen_and_destroyed(void)
{
	CUmemoryPool pool;

	app_start();
	pool = new_pool();
	APP_MUST(cuDeviceSetMemPool(0, pool));
	APP_MUST(cuMemPoolDestroy(pool));
	by_driver(app_stream());
}

static void from_pool(CUmemoryPool pool)
{
	uint64_t before = calls_of_driver();
	CUstream stream = app_stream();
	CUdeviceptr ptr;

	n_asked++;
	APP_MUST(cuMemAllocFromPoolAsync(&ptr, MIB, pool, stream));
	report_left(before);
	app_result("free", cuMemFreeAsync(ptr, stream));
}

void named_pool(void)
{
	app_start();
	from_pool(new_pool());
}

void named_pool_of_max(void)
{
	app_start();
	from_pool(new_pool_as((CUmemPoolProps){.maxSize = 64 * MIB}));
}

void named_shareable_pool(void)
{
	app_start();
	from_pool(new_pool_as((CUmemPoolProps){.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR}));
}

void named_pool_to_decompress(void)
{
	app_start();
	from_pool(new_pool_as((CUmemPoolProps){.usage = CU_MEM_POOL_CREATE_USAGE_HW_DECOMPRESS}));
}

void named_pool_of_other_use(void)
{
	app_start();
	from_pool(new_pool_as((CUmemPoolProps){.usage = 1}));
}

/* The driver serves the pool: what gpupool holds is not the pool's. */
void books_of_named_pool(void)
{
	uint64_t reserved = 0, used = 0;
	CUmemoryPool pool;
	CUdeviceptr ptr;

	app_start();
	(void)app_alloc(64 * MIB);
	pool = new_pool();
	n_asked++;
	APP_MUST(cuMemAllocFromPoolAsync(&ptr, MIB, pool, app_stream()));
	APP_MUST(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved));
	APP_MUST(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used));
	app_fact("reserved", reserved);
	app_fact("used", used);
	app_report_driver();
}

void named_pool_without_account(void)
{
	app_start();
	for (unsigned i = 0; i < GP_ACCOUNTS; i++)
		(void)new_pool();
	from_pool(new_pool());
}

/* Sets the access of device 1 to a pool. */
static void set_access(CUmemoryPool pool, int flags)
{
	const CUmemAccessDesc access = {.location = {CU_MEM_LOCATION_TYPE_DEVICE, 1}, .flags = flags};

	APP_MUST(cuMemPoolSetAccess(pool, &access, 1));
}

static CUmemoryPool new_pool_for_device_1(int flags)
{
	CUmemoryPool pool = new_pool();

	set_access(pool, flags);
	return pool;
}

/* Other devices have access to the default pool. */
void chosen_beside_opened(void)
{
	app_start();
	set_access(default_pool(0), CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	APP_MUST(cuDeviceSetMemPool(0, new_pool()));
	by_driver(app_stream());
}

void chosen_opened_pool(void)
{
	app_start();
	APP_MUST(cuDeviceSetMemPool(0, new_pool_for_device_1(CU_MEM_ACCESS_FLAGS_PROT_READWRITE)));
	by_driver(app_stream());
}

void named_opened_pool(void)
{
	app_start();
	from_pool(new_pool_for_device_1(CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
}

void named_closed_pool(void)
{
	app_start();
	from_pool(new_pool_for_device_1(CU_MEM_ACCESS_FLAGS_PROT_NONE));
}

static void pairs_from(CUmemPoolProps properties)
{
	CUmemoryPool pool;
	CUstream stream;
	CUdeviceptr ptr;
	uint64_t before = 0;

	app_start();
	pool = new_pool_as(properties);
	stream = app_stream();
	for (unsigned i = 0; i < 1016; i++) {
		if (i == 16)
			before = app_calls(NULL);
		APP_MUST(cuMemAllocFromPoolAsync(&ptr, MIB, pool, stream));
		APP_MUST(cuMemFreeAsync(ptr, stream));
	}
	app_fact("calls", app_calls(NULL) - before);
}

void pairs_from_made_pool(void)
{
	pairs_from((CUmemPoolProps){0});
}

void pairs_from_pool_of_max(void)
{
	pairs_from((CUmemPoolProps){.maxSize = 64 * MIB});
}

void named_default_pool(void)
{
	app_start();
	from_pool(default_pool(0));
}

void created_current(void)
{
	CUcontext ctx;

	app_start();
	APP_MUST(cuCtxCreate_v2(&ctx, 0, 0));
	APP_MUST(cuMemFreeAsync(take(MIB, NULL), NULL));
	report_left(0);
	app_result("free", 0);
}

/* Returns a stream of device 1. The primary context of device 0 is current. */
static CUstream start_with_stream_away(CUcontext *ret_away)
{
	CUstream stream;

	app_start();
	APP_MUST(cuDevicePrimaryCtxRetain(ret_away, 1));
	APP_MUST(cuCtxSetCurrent(*ret_away));
	stream = app_stream();
	APP_MUST(cuCtxSetCurrent(app_ctx));
	return stream;
}

void stream_of_other_device(void)
{
	uint64_t before;
	CUstream stream;
	CUcontext away;
	CUdeviceptr ptr;

	stream = start_with_stream_away(&away);
	before = calls_of_driver();
	ptr = take(MIB, stream);
	report_left(before);
	app_result("free", cuMemFreeAsync(ptr, stream));
	APP_MUST(cuCtxSetCurrent(away));
	APP_MUST(cuCtxSynchronize());
}

/* The device of the stream has no memory for that. */
void full_stream_of_other_device(void)
{
	CUdeviceptr ptr = 0;
	CUstream stream;
	CUcontext away;

	stream = start_with_stream_away(&away);
	app_result("allocation", cuMemAllocAsync(&ptr, 100 * MIB, stream));
}

/* An allocation that fails. */
static void refused(CUstream stream, size_t bytes)
{
	uint64_t before = calls_of_driver();
	CUdeviceptr ptr = 0;

	n_asked++;
	(void)cuMemAllocAsync(&ptr, bytes, stream);
	report_left(before);
	app_result("free", 0);
}

void ended_stream(void)
{
	CUstream stream;

	app_start();
	stream = app_stream();
	APP_MUST(cuStreamDestroy_v2(stream));
	refused(stream, MIB);
}

void no_bytes(void)
{
	app_start();
	(void)app_alloc(MIB);
	refused(NULL, 0);
}

static void fill_away(CUstream stream, CUdeviceptr ptr, unsigned value)
{
	app_result("fill", cuMemsetD32Async(ptr, value, KIB, stream));
	app_result("done", cuStreamSynchronize(stream));
}

static CUdeviceptr take_of(CUmemoryPool pool, CUstream stream)
{
	CUdeviceptr ptr;

	APP_MUST(cuMemAllocFromPoolAsync(&ptr, MIB, pool, stream));
	return ptr;
}

/*
 * Another device gets access to the pool when the program has memory of it. The access that the program enables
 * between contexts is another one, and ends without this one.
 */
static void open_with_memory(bool is_active, bool is_made)
{
	CUstream stream, away_stream;
	CUdeviceptr ptr, later;
	CUmemoryPool pool;
	CUcontext away;

	app_start();
	stream = app_stream();
	pool = is_made ? new_pool() : default_pool(0);
	ptr = take_of(pool, stream);
	app_fill(stream, ptr, 4 * KIB, 1);
	APP_MUST(cuStreamSynchronize(stream));
	if (!is_active)
		set_access(pool, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	APP_MUST(cuDevicePrimaryCtxRetain(&away, 1));
	APP_MUST(cuCtxSetCurrent(away));
	away_stream = app_stream();
	if (is_active)
		set_access(pool, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	fill_away(away_stream, ptr, 2);
	app_result("disable", cuCtxDisablePeerAccess(app_ctx));
	app_result("enable with flags", cuCtxEnablePeerAccess(app_ctx, 1));
	app_result("enable", cuCtxEnablePeerAccess(app_ctx, 0));
	app_result("enable again", cuCtxEnablePeerAccess(app_ctx, 0));
	app_result("disable", cuCtxDisablePeerAccess(app_ctx));
	fill_away(away_stream, ptr, 3);
	app_result("disable again", cuCtxDisablePeerAccess(app_ctx));
	APP_MUST(cuCtxSetCurrent(app_ctx));
	later = take_of(pool, stream);
	APP_MUST(cuStreamSynchronize(stream));
	APP_MUST(cuCtxSetCurrent(away));
	fill_away(away_stream, later, 4);
	APP_MUST(cuCtxSetCurrent(app_ctx));
	app_result("wrong words",
		(int)(app_count_wrong(stream, ptr, 4 * KIB, 3) + app_count_wrong(stream, later, 4 * KIB, 4)));
	app_report_driver();
}

void opened_with_memory(void)
{
	open_with_memory(true, false);
}

void made_opened_with_memory(void)
{
	open_with_memory(true, true);
}

/* The device has no context yet. */
void opened_to_idle(void)
{
	open_with_memory(false, false);
}

void made_opened_to_idle(void)
{
	open_with_memory(false, true);
}

static CUcontext away_ctx;
static CUdeviceptr opened_ptr;
static _Atomic int second_opener;

static void *open_and_use(void *unused)
{
	atomic_store(&second_opener, gettid());
	set_access(default_pool(0), CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	APP_MUST(cuCtxSetCurrent(away_ctx));
	fill_away(app_stream(), opened_ptr, 3);
	return NULL;
}

static void *open_first(void *unused)
{
	set_access(default_pool(0), CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	return NULL;
}

/* Two threads give the access at the same time, and one of them is slow. */
void opened_twice(void)
{
	pthread_t first, second;

	app_start();
	opened_ptr = take_of(default_pool(0), NULL);
	APP_MUST(cuDevicePrimaryCtxRetain(&away_ctx, 1));
	app_stop_calls("cuMemSetAccess", false);
	APP_MUST(pthread_create(&first, NULL, open_first, NULL));
	app_await_stopped_call();
	APP_MUST(pthread_create(&second, NULL, open_and_use, NULL));
	while (!atomic_load(&second_opener) || !app_is_asleep(second_opener))
		sched_yield();
	app_release_calls();
	APP_MUST(pthread_join(first, NULL));
	APP_MUST(pthread_join(second, NULL));
	app_report_driver();
}

static CUcontext make_green(void)
{
	CUdevResource all, part, rest;
	CUdevResourceDesc desc;
	CUgreenCtx green_ctx;
	CUcontext ctx;
	unsigned n = 1;

	APP_MUST(cuDeviceGetDevResource(0, &all, CU_DEV_RESOURCE_TYPE_SM));
	APP_MUST(cuDevSmResourceSplitByCount(&part, &n, &all, &rest, 0, 16));
	APP_MUST(cuDevResourceGenerateDesc(&desc, &part, 1));
	APP_MUST(cuGreenCtxCreate(&green_ctx, desc, 0, CU_GREEN_CTX_DEFAULT_STREAM));
	APP_MUST(cuCtxFromGreenCtx(&ctx, green_ctx));
	return ctx;
}

/* The primary context's memory serves no green context in stream order, whose streams are not its own. */
void green(void)
{
	app_start();
	APP_MUST(cuCtxSetCurrent(make_green()));
	by_driver(NULL);
}

/* The primary context is current. */
void stream_of_green_context(void)
{
	CUstream stream;

	app_start();
	APP_MUST(cuCtxSetCurrent(make_green()));
	stream = app_stream();
	APP_MUST(cuCtxSetCurrent(app_ctx));
	by_driver(stream);
}

void no_cache_scope(void)
{
	app_start();
	(void)app_alloc(MIB);
	(void)gpupool_no_cache_begin();
	by_driver(app_stream());
}

void no_context(void)
{
	app_start();
	(void)app_alloc(MIB);
	APP_MUST(cuCtxSetCurrent(NULL));
	refused(NULL, MIB);
}

void opened_pool(void)
{
	app_start();
	set_access(default_pool(0), CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	by_driver(app_stream());
}

void capture(void)
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

/* While another thread captures, the driver decides what an allocation on a stream that was in steady state does. */
static _Atomic bool is_capturing, is_capture_over;

static void *capture_in_thread(void *graph)
{
	CUstream stream;

	APP_MUST(cuCtxSetCurrent(app_ctx));
	stream = app_stream();
	APP_MUST(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	atomic_store(&is_capturing, true);
	while (!atomic_load(&is_capture_over))
		sched_yield();
	APP_MUST(cuStreamEndCapture(stream, graph));
	return NULL;
}

void capture_elsewhere(void)
{
	uint64_t before;
	CUstream stream;
	CUgraph graph;
	pthread_t thread;

	app_start();
	stream = app_stream();
	(void)make_pairs(stream, 16);
	APP_MUST(pthread_create(&thread, NULL, capture_in_thread, &graph));
	while (!atomic_load(&is_capturing))
		sched_yield();
	before = calls_of_driver();
	APP_MUST(cuMemFreeAsync(take(100 * KIB, stream), stream));
	app_fact("during the capture", calls_of_driver() - before);
	atomic_store(&is_capture_over, true);
	APP_MUST(pthread_join(thread, NULL));
	by_driver(stream);
}

/* A stream in steady state joins a capture by waiting for an event of it: its allocations are nodes of the graph. */
void capture_joined(void)
{
	uint64_t before;
	CUstream stream, captured;
	CUdeviceptr ptr;
	CUevent event;
	CUgraph graph;

	app_start();
	stream = app_stream();
	captured = app_stream();
	APP_MUST(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	(void)make_pairs(stream, 16);
	APP_MUST(cuStreamBeginCapture_v2(captured, CU_STREAM_CAPTURE_MODE_RELAXED));
	APP_MUST(cuEventRecord(event, captured));
	APP_MUST(cuStreamWaitEvent(stream, event, 0));
	before = calls_of_driver();
	ptr = take(100 * KIB, stream);
	APP_MUST(cuMemFreeAsync(ptr, stream));
	app_fact("during the capture", calls_of_driver() - before);
	APP_MUST(cuEventRecord(event, stream));
	APP_MUST(cuStreamWaitEvent(captured, event, 0));
	APP_MUST(cuStreamEndCapture(captured, &graph));
	APP_MUST(cuGraphDestroy(graph));
	by_driver(stream);
}
