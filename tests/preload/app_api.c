/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* A program that asks: every function of the public header, with the library there or not. */

#include <errno.h>
#include <pthread.h>

#include "api/gpupool.h"
#include "app_driver.h"

/* An errno value, so that facts need no sign. */
static void tell(const char *name, int64_t result)
{
	app_fact(name, (uint64_t)(result < 0 ? -result : result));
}

static struct gpupool_status status_of(int device)
{
	struct gpupool_status status;

	memset(&status, 0xff, sizeof(status));
	if (gpupool_get_status(device, &status))
		memset(&status, 0, sizeof(status));
	return status;
}

static int never(void *arg, int device, uint64_t bytes)
{
	return 0;
}

/* Nothing has been allocated, and perhaps nothing is there to answer. */
static void all(void)
{
	struct gpupool_status status;
	uint64_t bytes = 5;

	errno = 77;
	app_fact("version", gpupool_version() != NULL);
	tell("status", gpupool_get_status(0, &status));
	tell("reclaim", gpupool_reclaim(GPUPOOL_ALL_DEVICES));
	tell("free now", gpupool_free_now(0));
	tell("get limit", gpupool_get_limit(0, &bytes));
	tell("set limit", gpupool_set_limit(0, 64 * MIB));
	tell("set limit percent", gpupool_set_limit_percent(GPUPOOL_PINNED, 50));
	tell("defer begin", gpupool_defer_begin());
	tell("defer end", gpupool_defer_end());
	tell("no cache begin", gpupool_no_cache_begin());
	tell("no cache end", gpupool_no_cache_end());
	tell("hook", gpupool_set_oom_hook(never, NULL));
	tell("region begin", gpupool_region_begin("mine"));
	tell("region end", gpupool_region_end());
	tell("region invalidate", gpupool_region_invalidate("mine"));
	app_fact("errno", (uint64_t)errno);
}

/* With the library: what it answers where there is no such device, scope or limit. */
static void wrong(void)
{
	struct gpupool_status status;
	uint64_t bytes;

	app_start();
	tell("status", gpupool_get_status(1, &status));
	tell("status of all", gpupool_get_status(GPUPOOL_ALL_DEVICES, &status));
	tell("reclaim", gpupool_reclaim(64));
	tell("free now", gpupool_free_now(-3));
	tell("get limit", gpupool_get_limit(1, &bytes));
	tell("set limit", gpupool_set_limit(1, MIB));
	tell("no bytes", gpupool_set_limit(0, 0));
	tell("no percent", gpupool_set_limit_percent(0, 0));
	tell("too many percent", gpupool_set_limit_percent(0, 100.5));
	tell("defer end", gpupool_defer_end());
	tell("no cache end", gpupool_no_cache_end());
	tell("good", gpupool_get_status(0, &status));
}

static void memory(void)
{
	struct gpupool_status status;
	CUdeviceptr ptr;
	void *host;

	app_start();
	ptr = app_alloc(8 * KIB);
	status = status_of(0);
	app_fact("used", status.used_bytes);
	app_fact("requested", status.requested_bytes);
	app_fact("blocks", status.n_used_blocks);
	app_fact("limit is none", status.limit_bytes == GPUPOOL_NO_LIMIT);
	app_fact("device total", status.device_total_bytes);
	app_fact("device free", status.device_free_bytes);
	APP_MUST(cuMemFree_v2(ptr));
	status = status_of(0);
	app_fact("used after", status.used_bytes);
	app_fact("kept", status.cached_bytes + status.pending_bytes);
	app_fact("sum", status.total_bytes == status.used_bytes + status.cached_bytes + status.pending_bytes +
						      status.returning_bytes);
	tell("reclaimed", gpupool_reclaim(0));
	app_fact("total after", status_of(0).total_bytes);
	APP_MUST(cuMemHostAlloc(&host, MIB, 0));
	app_fact("pinned used", status_of(GPUPOOL_PINNED).used_bytes);
	APP_MUST(cuMemFreeHost(host));
	tell("pinned released", gpupool_free_now(GPUPOOL_PINNED));
	app_fact("pinned total", status_of(GPUPOOL_PINNED).total_bytes);
}

/* What is pending behind work of the GPU's goes back, and not before that is done. */
static void free_now(void)
{
	CUstream stream;
	CUdeviceptr ptr;

	app_start();
	stream = app_stream();
	ptr = app_alloc(32 * MIB);
	app_spin_fill(stream, ptr, 32 * MIB, 3, 50 * MS);
	APP_MUST(cuMemFree_v2(ptr));
	app_fact("pending", status_of(0).pending_bytes);
	tell("reclaimed", gpupool_reclaim(0));
	app_fact("still there", status_of(0).total_bytes);
	tell("freed now", gpupool_free_now(0));
	app_fact("stream", (uint64_t)cuStreamQuery(stream));
	app_fact("total", status_of(0).total_bytes);
}

static void limits(void)
{
	CUdeviceptr first, second = 0, third = 0;
	uint64_t bytes = 0;

	tell("before CUDA", gpupool_set_limit_percent(0, 50));
	tell("of unknown size", gpupool_get_limit(0, &bytes));
	app_start();
	tell("get", gpupool_get_limit(0, &bytes));
	app_fact("half", bytes);
	first = app_alloc(100 * MIB);
	second = app_alloc(100 * MIB);
	APP_MUST(cuMemFree_v2(second));
	APP_MUST(cuCtxSynchronize());
	tell("set below", gpupool_set_limit(0, 64 * MIB));
	app_fact("used below", status_of(0).used_bytes);
	app_fact("total below", status_of(0).total_bytes);
	app_fact("more", (uint64_t)cuMemAlloc_v2(&third, 2 * MIB));
	app_fill(NULL, first, 100 * MIB, 7);
	app_fact("wrong words", app_count_wrong(NULL, first, 100 * MIB, 7));
	APP_MUST(cuMemFree_v2(first));
	app_fact("again", (uint64_t)cuMemAlloc_v2(&third, 2 * MIB));
	app_fact("total", status_of(0).total_bytes);
	app_pause("limit");
	app_fact("large", (uint64_t)cuMemAlloc_v2(&first, 128 * MIB));
	tell("no limit", gpupool_set_limit(GPUPOOL_ALL_DEVICES, GPUPOOL_NO_LIMIT));
	app_fact("then", (uint64_t)cuMemAlloc_v2(&first, 128 * MIB));
	tell("pinned", gpupool_set_limit(GPUPOOL_PINNED, 3 * MIB));
	tell("get pinned", gpupool_get_limit(GPUPOOL_PINNED, &bytes));
	app_fact("pinned limit", bytes);
}

/* For the kind none with a queue of 10. */
static void defer(void)
{
	CUdeviceptr ptrs[30];

	app_start();
	for (int i = 0; i < 30; i++)
		ptrs[i] = app_alloc(MIB);
	tell("begin", gpupool_defer_begin());
	tell("begin again", gpupool_defer_begin());
	for (int i = 0; i < 25; i++)
		APP_MUST(cuMemFree_v2(ptrs[i]));
	app_fact("queued", status_of(0).n_pending_blocks);
	tell("end", gpupool_defer_end());
	app_fact("still queued", status_of(0).n_pending_blocks);
	tell("end again", gpupool_defer_end());
	app_fact("flushed", status_of(0).n_pending_blocks);
	for (int i = 25; i < 30; i++)
		APP_MUST(cuMemFree_v2(ptrs[i]));
	app_fact("queued again", status_of(0).n_pending_blocks);
	app_pause("defer");
	tell("not its own", gpupool_defer_end());
	for (int i = 0; i < 30; i++)
		ptrs[i] = app_alloc(MIB);
	for (int i = 0; i < 30; i++)
		APP_MUST(cuMemFree_v2(ptrs[i]));
	app_fact("queued by hand", status_of(0).n_pending_blocks);
	app_fact("large", (uint64_t)cuMemAlloc_v2(&ptrs[0], 1000 * MIB));
	app_fact("queued at the end", status_of(0).n_pending_blocks);
}

static void *allocate_elsewhere(void *arg)
{
	CUdeviceptr ptr;

	APP_MUST(cuCtxSetCurrent(app_ctx));
	ptr = app_alloc(3 * MIB);
	APP_MUST(cuMemFree_v2(ptr));
	app_fact("kept by another thread", status_of(0).cached_bytes + status_of(0).pending_bytes >= 3 * MIB);
	return NULL;
}

static void no_cache(void)
{
	CUdeviceptr outside, inside, small;
	pthread_t thread;
	uint64_t total;

	app_start();
	outside = app_alloc(200 * KIB);
	small = app_alloc(KIB);
	total = status_of(0).total_bytes;
	tell("begin", gpupool_no_cache_begin());
	tell("begin again", gpupool_no_cache_begin());
	inside = app_alloc(5 * MIB);
	app_fill(NULL, inside, 5 * MIB, 9);
	APP_MUST(cuMemFree_v2(inside));
	APP_MUST(cuCtxSynchronize());
	tell("end", gpupool_no_cache_end());
	inside = app_alloc(100);
	APP_MUST(cuMemFree_v2(inside));
	inside = app_alloc(7 * MIB);
	APP_MUST(pthread_create(&thread, NULL, allocate_elsewhere, NULL));
	APP_MUST(pthread_join(thread, NULL));
	tell("end again", gpupool_no_cache_end());
	tell("reclaimed", gpupool_reclaim(0) >= 0);
	app_fact("more than before", status_of(0).total_bytes - total);
	/* Freed outside, it is not kept either. */
	APP_MUST(cuMemFree_v2(inside));
	APP_MUST(cuCtxSynchronize());
	APP_MUST(cuMemFree_v2(small));
	small = app_alloc(KIB);
	app_fact("in use at the end", status_of(0).total_bytes - status_of(0).returning_bytes < total + MIB);
	tell("begin once more", gpupool_no_cache_begin());
	APP_MUST(cuMemFree_v2(outside));
	APP_MUST(cuMemFree_v2(small));
	tell("end once more", gpupool_no_cache_end());
	tell("freed now", gpupool_free_now(0) >= 0);
	app_fact("nothing left", status_of(0).total_bytes);
	app_tell_driver();
}

static void alloc_all(CUdeviceptr *ptrs, int n, size_t bytes)
{
	for (int i = 0; i < n; i++)
		if (cuMemAlloc_v2(&ptrs[i], bytes))
			ptrs[i] = 0;
}

static void free_all(const CUdeviceptr *ptrs, int n)
{
	for (int i = 0; i < n; i++)
		APP_MUST(cuMemFree_v2(ptrs[i]));
}

/* All that the program, or somebody outside, can tell the pool while it runs. */
static void told(void)
{
	CUdeviceptr few[4], many[24];

	tell("defer", gpupool_defer_begin());
	app_start();
	alloc_all(many, 24, MIB);
	free_all(many, 24);
	tell("end", gpupool_defer_end());
	alloc_all(few, 4, 20 * MIB);
	alloc_all(many, 24, 3 * MIB);
	free_all(many, 24);
	APP_MUST(cuCtxSynchronize());
	tell("limit", gpupool_set_limit(0, 100 * MIB));
	alloc_all(many, 24, 2 * MIB);
	free_all(many, 24);
	free_all(few, 2);
	app_pause("middle");
	alloc_all(many, 24, 6 * MIB);
	free_all(many, 24);
	tell("no limit", gpupool_set_limit(0, GPUPOOL_NO_LIMIT));
	tell("no cache", gpupool_no_cache_begin());
	alloc_all(many, 6, 5 * MIB);
	tell("cache", gpupool_no_cache_end());
	free_all(many, 3);
	tell("no cache", gpupool_no_cache_begin());
	free_all(many + 3, 3);
	free_all(few + 2, 1);
	tell("cache", gpupool_no_cache_end());
	alloc_all(many, 24, 7 * MIB);
	app_pause("end");
}

struct plenty {
	CUdeviceptr ptr;
	int calls, device;
	uint64_t bytes;
};

/* Lets go of what it has; the second time there is nothing. Its own failure does not come here again. */
static int let_go(void *arg, int device, uint64_t bytes)
{
	struct plenty *plenty = (struct plenty *)arg;
	CUdeviceptr ptr = plenty->ptr, unused;

	plenty->calls++;
	plenty->device = device;
	plenty->bytes = bytes;
	if (!ptr)
		return 0;
	app_result("in the hook", cuMemAlloc_v2(&unused, 900 * MIB));
	APP_MUST(cuMemFree_v2(ptr));
	plenty->ptr = 0;
	return 1;
}

static void hook(void)
{
	struct plenty plenty = {.ptr = 0};
	CUdeviceptr ptr, other;

	app_start();
	plenty.ptr = app_alloc(600 * MIB);
	tell("set", gpupool_set_oom_hook(let_go, &plenty));
	app_fact("alloc", (uint64_t)cuMemAlloc_v2(&ptr, 700 * MIB));
	app_fact("calls", (uint64_t)plenty.calls);
	app_fact("device", (uint64_t)plenty.device);
	app_fact("bytes", plenty.bytes);
	app_fact("ooms", status_of(0).ooms);
	app_fact("too much", (uint64_t)cuMemAlloc_v2(&other, 700 * MIB));
	app_fact("calls then", (uint64_t)plenty.calls);
	plenty.ptr = ptr;
	app_fact("not pooled", (uint64_t)cuMemAllocAsync(&other, 600 * MIB, NULL));
	app_fact("calls at last", (uint64_t)plenty.calls);
	tell("unset", gpupool_set_oom_hook(NULL, NULL));
	app_fact("without", (uint64_t)cuMemAlloc_v2(&ptr, 700 * MIB));
	app_fact("calls without", (uint64_t)plenty.calls);
}

enum { THREADS = 4, TURNS = 400 };

/* In scopes and out of them, while others change the limits. */
static void *churn(void *arg)
{
	unsigned state = (unsigned)(uintptr_t)arg, n_refused = 0;

	APP_MUST(cuCtxSetCurrent(app_ctx));
	for (int i = 0; i < TURNS; i++) {
		bool is_uncached = app_random(&state) % 4 == 0, is_deferred = app_random(&state) % 8 == 0;
		CUdeviceptr ptr;

		if (is_uncached)
			gpupool_no_cache_begin();
		if (is_deferred)
			gpupool_defer_begin();
		if (cuMemAlloc_v2(&ptr, 1 + app_random(&state) % (256 * KIB)))
			n_refused++;
		else
			APP_MUST(cuMemFree_v2(ptr));
		if (is_deferred)
			gpupool_defer_end();
		if (is_uncached)
			gpupool_no_cache_end();
	}
	return (void *)(uintptr_t)n_refused;
}

static void *meddle(void *arg)
{
	APP_MUST(cuCtxSetCurrent(app_ctx));
	for (uint64_t i = 0; i < 60; i++) {
		gpupool_set_limit(0, (64 + i % 4 * 64) * MIB);
		gpupool_reclaim(GPUPOOL_ALL_DEVICES);
		gpupool_set_oom_hook(i % 2 ? never : NULL, NULL);
		gpupool_free_now(0);
		(void)status_of(0);
	}
	return NULL;
}

static void threads(void)
{
	pthread_t all[THREADS + 1];
	uint64_t n_refused = 0;
	void *result;

	app_start();
	APP_MUST(cuMemFree_v2(app_alloc(KIB)));
	for (uintptr_t i = 0; i < THREADS; i++)
		APP_MUST(pthread_create(&all[i], NULL, churn, (void *)(i + 1)));
	APP_MUST(pthread_create(&all[THREADS], NULL, meddle, NULL));
	app_pause("threads");
	for (int i = 0; i <= THREADS; i++) {
		APP_MUST(pthread_join(all[i], &result));
		n_refused += (uintptr_t)result;
	}
	app_fact("refused", n_refused);
	app_fact("used", status_of(0).used_bytes);
	tell("freed now", gpupool_free_now(0) >= 0);
	app_fact("total", status_of(0).total_bytes);
	app_tell_driver();
}

const struct app_scenario app_scenarios[] = {
	{"all", all},
	{"defer", defer},
	{"free-now", free_now},
	{"hook", hook},
	{"limits", limits},
	{"memory", memory},
	{"no-cache", no_cache},
	{"threads", threads},
	{"told", told},
	{"wrong", wrong},
	{NULL},
};
