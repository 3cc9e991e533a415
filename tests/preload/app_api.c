/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Calls every function of the public header, with the library or without it. */

#include <errno.h>
#include <pthread.h>

#include "api/gpupool.h"
#include "app_driver.h"

/* Reports an errno value, without its sign since facts are unsigned. */
static void report(const char *name, int64_t result)
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

/* Calls every function before anything is allocated. The library may be absent. */
static void all(void)
{
	struct gpupool_status status;
	uint64_t bytes = 5;

	errno = 77;
	app_fact("version", gpupool_version() != NULL);
	report("status", gpupool_get_status(0, &status));
	report("reclaim", gpupool_reclaim(GPUPOOL_ALL_DEVICES));
	report("free now", gpupool_free_now(0));
	report("get limit", gpupool_get_limit(0, &bytes));
	report("set limit", gpupool_set_limit(0, 64 * MIB));
	report("set limit percent", gpupool_set_limit_percent(GPUPOOL_PINNED, 50));
	report("defer begin", gpupool_defer_begin());
	report("defer end", gpupool_defer_end());
	report("no cache begin", gpupool_no_cache_begin());
	report("no cache end", gpupool_no_cache_end());
	report("hook", gpupool_set_oom_hook(never, NULL));
	report("region begin", gpupool_region_begin("mine"));
	report("region end", gpupool_region_end());
	report("region invalidate", gpupool_region_invalidate("mine"));
	app_fact("errno", (uint64_t)errno);
}

/* Calls with the library for a device, scope or limit that does not exist. */
static void wrong(void)
{
	struct gpupool_status status;
	uint64_t bytes;

	app_start();
	report("status", gpupool_get_status(1, &status));
	report("status of all", gpupool_get_status(GPUPOOL_ALL_DEVICES, &status));
	report("reclaim", gpupool_reclaim(64));
	report("free now", gpupool_free_now(-3));
	report("get limit", gpupool_get_limit(1, &bytes));
	report("set limit", gpupool_set_limit(1, MIB));
	report("no bytes", gpupool_set_limit(0, 0));
	report("no percent", gpupool_set_limit_percent(0, 0));
	report("too many percent", gpupool_set_limit_percent(0, 100.5));
	report("defer end", gpupool_defer_end());
	report("no cache end", gpupool_no_cache_end());
	report("good", gpupool_get_status(0, &status));
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
	app_fact("used after the free", status.used_bytes);
	app_fact("cached or pending", status.cached_bytes + status.pending_bytes);
	app_fact("total is the sum", status.total_bytes == status.used_bytes + status.cached_bytes +
								   status.pending_bytes + status.returning_bytes);
	report("reclaimed", gpupool_reclaim(0));
	app_fact("total after the reclaim", status_of(0).total_bytes);
	APP_MUST(cuMemHostAlloc(&host, MIB, 0));
	app_fact("pinned used", status_of(GPUPOOL_PINNED).used_bytes);
	APP_MUST(cuMemFreeHost(host));
	report("pinned released", gpupool_free_now(GPUPOOL_PINNED));
	app_fact("pinned total", status_of(GPUPOOL_PINNED).total_bytes);
}

/* Memory that is pending behind GPU work stays in a reclaim. free_now waits for that work and returns the memory. */
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
	report("reclaimed", gpupool_reclaim(0));
	app_fact("left by the reclaim", status_of(0).total_bytes);
	report("freed now", gpupool_free_now(0));
	app_fact("stream query", (uint64_t)cuStreamQuery(stream));
	app_fact("total", status_of(0).total_bytes);
}

static void limits(void)
{
	CUdeviceptr first, second = 0, third = 0;
	uint64_t bytes = 0;

	report("percentage before CUDA", gpupool_set_limit_percent(0, 50));
	report("query before CUDA", gpupool_get_limit(0, &bytes));
	app_start();
	report("get", gpupool_get_limit(0, &bytes));
	app_fact("half of the device", bytes);
	first = app_alloc(100 * MIB);
	second = app_alloc(100 * MIB);
	APP_MUST(cuMemFree_v2(second));
	APP_MUST(cuCtxSynchronize());
	report("limit below use", gpupool_set_limit(0, 64 * MIB));
	app_fact("limited used", status_of(0).used_bytes);
	app_fact("limited total", status_of(0).total_bytes);
	app_fact("alloc over the limit", (uint64_t)cuMemAlloc_v2(&third, 2 * MIB));
	app_fill(NULL, first, 100 * MIB, 7);
	app_fact("wrong words", app_count_wrong(NULL, first, 100 * MIB, 7));
	APP_MUST(cuMemFree_v2(first));
	app_fact("alloc after the free", (uint64_t)cuMemAlloc_v2(&third, 2 * MIB));
	app_fact("total", status_of(0).total_bytes);
	app_pause("limit");
	app_fact("large alloc", (uint64_t)cuMemAlloc_v2(&first, 128 * MIB));
	report("no limit", gpupool_set_limit(GPUPOOL_ALL_DEVICES, GPUPOOL_NO_LIMIT));
	app_fact("alloc without a limit", (uint64_t)cuMemAlloc_v2(&first, 128 * MIB));
	report("pinned", gpupool_set_limit(GPUPOOL_PINNED, 3 * MIB));
	report("get pinned", gpupool_get_limit(GPUPOOL_PINNED, &bytes));
	app_fact("pinned limit", bytes);
}

/* For the kind none with a queue of 10 blocks. */
static void defer(void)
{
	CUdeviceptr ptrs[30];

	app_start();
	for (int i = 0; i < 30; i++)
		ptrs[i] = app_alloc(MIB);
	report("begin", gpupool_defer_begin());
	report("begin again", gpupool_defer_begin());
	for (int i = 0; i < 25; i++)
		APP_MUST(cuMemFree_v2(ptrs[i]));
	app_fact("queued", status_of(0).n_pending_blocks);
	report("end", gpupool_defer_end());
	app_fact("still queued", status_of(0).n_pending_blocks);
	report("end again", gpupool_defer_end());
	app_fact("flushed", status_of(0).n_pending_blocks);
	for (int i = 25; i < 30; i++)
		APP_MUST(cuMemFree_v2(ptrs[i]));
	app_fact("queued again", status_of(0).n_pending_blocks);
	app_pause("defer");
	report("end of another scope", gpupool_defer_end());
	for (int i = 0; i < 30; i++)
		ptrs[i] = app_alloc(MIB);
	for (int i = 0; i < 30; i++)
		APP_MUST(cuMemFree_v2(ptrs[i]));
	app_fact("queued by request", status_of(0).n_pending_blocks);
	app_fact("large alloc", (uint64_t)cuMemAlloc_v2(&ptrs[0], 1000 * MIB));
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
	report("begin", gpupool_no_cache_begin());
	report("begin again", gpupool_no_cache_begin());
	inside = app_alloc(5 * MIB);
	app_fill(NULL, inside, 5 * MIB, 9);
	APP_MUST(cuMemFree_v2(inside));
	APP_MUST(cuCtxSynchronize());
	report("end", gpupool_no_cache_end());
	inside = app_alloc(100);
	APP_MUST(cuMemFree_v2(inside));
	inside = app_alloc(7 * MIB);
	APP_MUST(pthread_create(&thread, NULL, allocate_elsewhere, NULL));
	APP_MUST(pthread_join(thread, NULL));
	report("end again", gpupool_no_cache_end());
	report("reclaimed", gpupool_reclaim(0) >= 0);
	app_fact("growth", status_of(0).total_bytes - total);
	/* A block that was allocated inside the scope is not cached when it is freed outside. */
	APP_MUST(cuMemFree_v2(inside));
	APP_MUST(cuCtxSynchronize());
	APP_MUST(cuMemFree_v2(small));
	small = app_alloc(KIB);
	app_fact("uncached block is gone", status_of(0).total_bytes - status_of(0).returning_bytes < total + MIB);
	report("begin once more", gpupool_no_cache_begin());
	APP_MUST(cuMemFree_v2(outside));
	APP_MUST(cuMemFree_v2(small));
	report("end once more", gpupool_no_cache_end());
	report("freed now", gpupool_free_now(0) >= 0);
	app_fact("bytes left", status_of(0).total_bytes);
	app_report_driver();
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

/* Uses every control that the program, or another process, has over the pool while it runs. */
static void use_controls(void)
{
	CUdeviceptr few[4], many[24];

	report("defer", gpupool_defer_begin());
	app_start();
	alloc_all(many, 24, MIB);
	free_all(many, 24);
	report("end", gpupool_defer_end());
	alloc_all(few, 4, 20 * MIB);
	alloc_all(many, 24, 3 * MIB);
	free_all(many, 24);
	APP_MUST(cuCtxSynchronize());
	report("limit", gpupool_set_limit(0, 100 * MIB));
	alloc_all(many, 24, 2 * MIB);
	free_all(many, 24);
	free_all(few, 2);
	app_pause("middle");
	alloc_all(many, 24, 6 * MIB);
	free_all(many, 24);
	report("no limit", gpupool_set_limit(0, GPUPOOL_NO_LIMIT));
	report("no cache", gpupool_no_cache_begin());
	alloc_all(many, 6, 5 * MIB);
	report("cache", gpupool_no_cache_end());
	free_all(many, 3);
	report("no cache", gpupool_no_cache_begin());
	free_all(many + 3, 3);
	free_all(few + 2, 1);
	report("cache", gpupool_no_cache_end());
	alloc_all(many, 24, 7 * MIB);
	app_pause("end");
}

struct holder {
	CUdeviceptr ptr;
	int calls, device;
	uint64_t bytes;
};

/*
 * The out-of-memory hook: frees a held block, if any. A failure of the hook's own allocation does not call the hook
 * again.
 */
static int free_held_block(void *arg, int device, uint64_t bytes)
{
	struct holder *holder = (struct holder *)arg;
	CUdeviceptr ptr = holder->ptr, unused;

	holder->calls++;
	holder->device = device;
	holder->bytes = bytes;
	if (!ptr)
		return 0;
	app_result("in the hook", cuMemAlloc_v2(&unused, 900 * MIB));
	APP_MUST(cuMemFree_v2(ptr));
	holder->ptr = 0;
	return 1;
}

static void hook(void)
{
	struct holder holder = {.ptr = 0};
	CUdeviceptr ptr, other;

	app_start();
	holder.ptr = app_alloc(600 * MIB);
	report("set", gpupool_set_oom_hook(free_held_block, &holder));
	app_fact("alloc", (uint64_t)cuMemAlloc_v2(&ptr, 700 * MIB));
	app_fact("calls", (uint64_t)holder.calls);
	app_fact("device", (uint64_t)holder.device);
	app_fact("bytes", holder.bytes);
	app_fact("ooms", status_of(0).ooms);
	app_fact("second alloc", (uint64_t)cuMemAlloc_v2(&other, 700 * MIB));
	app_fact("calls after second alloc", (uint64_t)holder.calls);
	holder.ptr = ptr;
	app_fact("async alloc", (uint64_t)cuMemAllocAsync(&other, 600 * MIB, NULL));
	app_fact("calls after async alloc", (uint64_t)holder.calls);
	report("unset", gpupool_set_oom_hook(NULL, NULL));
	app_fact("alloc without hook", (uint64_t)cuMemAlloc_v2(&ptr, 700 * MIB));
	app_fact("calls after unset", (uint64_t)holder.calls);
}

enum { THREADS = 4, TURNS = 400 };

/* Allocates and frees inside and outside scopes, while another thread changes the limits. */
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

static void *change_settings(void *arg)
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
	APP_MUST(pthread_create(&all[THREADS], NULL, change_settings, NULL));
	app_pause("threads");
	for (int i = 0; i <= THREADS; i++) {
		APP_MUST(pthread_join(all[i], &result));
		n_refused += (uintptr_t)result;
	}
	app_fact("refused", n_refused);
	app_fact("used", status_of(0).used_bytes);
	report("freed now", gpupool_free_now(0) >= 0);
	app_fact("total", status_of(0).total_bytes);
	app_report_driver();
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
	{"controls", use_controls},
	{"wrong", wrong},
	{NULL},
};
