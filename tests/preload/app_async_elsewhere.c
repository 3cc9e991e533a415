/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Memory of the pool beside other contexts: freed on their streams, or in use as one is created. */

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <unistd.h>

#include "api/gpupool.h"
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

/* Many blocks are freed on a busy stream of another context. */
void elsewhere_many(void)
{
	CUstream stream, busy;
	CUdeviceptr ptrs[40];
	uint64_t used = 1;
	CUcontext ctx;

	app_start();
	stream = app_stream();
	for (unsigned i = 0; i < LENGTH(ptrs); i++)
		ptrs[i] = take(MIB, stream);
	ctx = use_in_created(ptrs[0], &busy);
	for (unsigned i = 0; i < LENGTH(ptrs); i++)
		APP_MUST(cuMemFreeAsync(ptrs[i], busy));
	app_fact("queries", app_calls("cuEventQuery"));
	let_work_go_on();
	app_result("the work", cuStreamSynchronize(busy));
	APP_MUST(cuCtxDestroy_v2(ctx));
	APP_MUST(cuCtxSetCurrent(app_ctx));
	APP_MUST(cuMemFreeAsync(take(2 * MIB, stream), stream));
	APP_MUST(cuMemPoolGetAttribute(default_pool(0), CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used));
	app_fact("bytes in use", used);
	app_report_driver();
}

/* A thread that caches nothing frees a block on a busy stream of another context. Then the block's context ends. */
void elsewhere_uncached(void)
{
	CUstream busy;
	CUdeviceptr ptr;

	app_start();
	ptr = take(8 * MIB, app_stream());
	(void)use_in_created(ptr, &busy);
	(void)gpupool_no_cache_begin();
	app_result("free", cuMemFreeAsync(ptr, busy));
	(void)gpupool_no_cache_end();
	APP_MUST(cuDevicePrimaryCtxReset_v2(0));
	let_work_go_on();
	app_result("the work", cuStreamSynchronize(busy));
	app_report_driver();
}

static CUstream ordered;
static CUdeviceptr ordered_ptrs[2];
static volatile uint32_t *flags;
static _Atomic int second_poller;

static void *poll_in_thread(void *unused)
{
	size_t available, total;

	APP_MUST(cuCtxSetCurrent(app_ctx));
	APP_MUST(cuMemGetInfo_v2(&available, &total));
	return NULL;
}

static void *free_second(void *unused)
{
	atomic_store(&second_poller, gettid());
	APP_MUST(cuCtxSetCurrent(app_ctx));
	APP_MUST(cuMemFreeAsync(ordered_ptrs[1], ordered));
	return NULL;
}

/* Two threads ask about a free each at the same time, and give back what they have asked about in any order. */
static void ask_at_once(void)
{
	pthread_t poller, freer;

	atomic_store(&second_poller, 0);
	app_stop_calls("cuEventQuery", true);
	APP_MUST(pthread_create(&poller, NULL, poll_in_thread, NULL));
	app_await_stopped_call();
	APP_MUST(pthread_create(&freer, NULL, free_second, NULL));
	while (!atomic_load(&second_poller) || !app_is_asleep(second_poller))
		sched_yield();
	app_release_calls();
	APP_MUST(pthread_join(poller, NULL));
	APP_MUST(pthread_join(freer, NULL));
}

static uint64_t used_now(void)
{
	uint64_t used = 0;

	APP_MUST(cuMemPoolGetAttribute(default_pool(0), CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used));
	return used;
}

/* The first of two frees on a stream of the primary context is done. ctx: that of the blocks. */
static void free_one_after_the_other(CUcontext ctx)
{
	CUevent first;

	flags[0] = flags[1] = 0;
	APP_MUST(cuCtxSetCurrent(ctx));
	for (unsigned i = 0; i < 2; i++)
		ordered_ptrs[i] = take(MIB, NULL);
	APP_MUST(cuCtxSynchronize());
	APP_MUST(cuCtxSetCurrent(app_ctx));
	APP_MUST(cuEventCreate(&first, CU_EVENT_DISABLE_TIMING));
	app_spin_until(ordered, (const uint32_t *)&flags[0], 1);
	APP_MUST(cuMemFreeAsync(ordered_ptrs[0], ordered));
	APP_MUST(cuEventRecord(first, ordered));
	app_spin_until(ordered, (const uint32_t *)&flags[1], 1);
	ask_at_once();
	flags[0] = 1;
	APP_MUST(cuEventSynchronize(first));
	app_say("used once the first is done", "%d", (int)(used_now() / KIB));
	flags[1] = 1;
	APP_MUST(cuStreamSynchronize(ordered));
	app_say("used in the end", "%d", (int)(used_now() / KIB));
	APP_MUST(cuEventDestroy_v2(first));
}

void elsewhere_in_turn(void)
{
	CUcontext ctx;
	void *words;

	app_start();
	APP_MUST(cuMemHostAlloc(&words, 2 * sizeof(*flags), CU_MEMHOSTALLOC_PORTABLE));
	flags = words;
	ordered = app_stream();
	APP_MUST(cuCtxCreate_v2(&ctx, 0, 0));
	for (unsigned i = 0; i < 8; i++)
		free_one_after_the_other(ctx);
	app_report_driver();
}
