/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* A program with regions. Without the library they have no effect. */

#include <pthread.h>
#include <stdint.h>

#include "api/gpupool.h"
#include "app_driver.h"

enum { TURNS = 1000, RESULTS = 16, REGIONS = 70 };

static struct gpupool_status status(void)
{
	struct gpupool_status status = {0};

	(void)gpupool_get_status(0, &status);
	return status;
}

/* Allocates a block, frees it and waits for the GPU. */
static CUdeviceptr once(size_t bytes)
{
	CUdeviceptr ptr = app_alloc(bytes);

	APP_MUST(cuMemFree_v2(ptr));
	APP_MUST(cuCtxSynchronize());
	return ptr;
}

static CUdeviceptr once_in(const char *region, size_t bytes)
{
	CUdeviceptr ptr;

	(void)gpupool_region_begin(region);
	ptr = once(bytes);
	(void)gpupool_region_end();
	return ptr;
}

static const size_t sizes[] = {512, 64 * KIB, MIB, 5 * MIB, 40 * MIB};

/* A block that was freed in a region is reused by that region and by no other. */
static void apart(void)
{
	uint64_t n_shared = 0, n_lost = 0;

	app_start();
	for (size_t i = 0; i < LENGTH(sizes); i++) {
		CUdeviceptr in_a = once_in("a", sizes[i]), in_b = once_in("b", sizes[i]), none = once(sizes[i]);

		uint64_t misses = status().misses;

		n_shared += in_a == in_b || in_a == none || in_b == none;
		(void)once_in("a", sizes[i]);
		(void)once_in("b", sizes[i]);
		(void)once(sizes[i]);
		n_lost += status().misses - misses;
	}
	app_fact("shared", n_shared);
	app_fact("misses on known sizes", n_lost);
	app_fact("cached", status().cached_bytes + status().pending_bytes);
	app_pause("apart");
	app_report_driver();
}

static void nest(void)
{
	CUdeviceptr outer, inner, again;

	app_start();
	(void)gpupool_region_begin("outer");
	outer = once(3 * MIB);
	(void)gpupool_region_begin("inner");
	inner = once(3 * MIB);
	(void)gpupool_region_begin("outer");
	again = once(3 * MIB);
	(void)gpupool_region_end();
	app_fact("inner again", once(3 * MIB) == inner);
	(void)gpupool_region_end();
	app_fact("inner differs from outer", inner != outer);
	app_fact("same region again", again == outer);
	app_fact("outer again", once(3 * MIB) == outer);
	(void)gpupool_region_end();
	app_fact("one end too many", (uint64_t)-gpupool_region_end());
	/* Regions nest to any depth. */
	for (int i = 0; i < 100; i++)
		(void)gpupool_region_begin(i % 2 ? "inner" : "outer");
	app_fact("inner at depth 100", once(3 * MIB) == inner);
	for (int i = 0; i < 99; i++)
		(void)gpupool_region_end();
	app_fact("outer after 99 ends", once(3 * MIB) == outer);
	(void)gpupool_region_end();
	/* A function that calls itself stays in one region. */
	for (int i = 0; i < 100000; i++)
		(void)gpupool_region_begin("outer");
	(void)gpupool_region_begin("inner");
	app_fact("inner in a recursion", once(3 * MIB) == inner);
	(void)gpupool_region_end();
	for (int i = 0; i < 99999; i++)
		(void)gpupool_region_end();
	app_fact("outer after 99999 ends", once(3 * MIB) == outer);
	(void)gpupool_region_end();
	app_fact("end outside", (uint64_t)-gpupool_region_end());
}

/* The other thread's block belongs to the region of its allocation, wherever it is freed. */
static void *free_elsewhere(void *arg)
{
	CUdeviceptr *ptrs = (CUdeviceptr *)arg;

	APP_MUST(cuCtxSetCurrent(app_ctx));
	app_fact("end in another thread", (uint64_t)-gpupool_region_end());
	APP_MUST(cuMemFree_v2(ptrs[0]));
	(void)gpupool_region_begin("b");
	APP_MUST(cuMemFree_v2(ptrs[1]));
	APP_MUST(cuCtxSynchronize());
	ptrs[2] = once(7 * MIB);
	(void)gpupool_region_begin("a");
	ptrs[3] = once(7 * MIB);
	return NULL;
}

static void *look_elsewhere(void *arg)
{
	APP_MUST(cuCtxSetCurrent(app_ctx));
	app_fact("end in a new thread", (uint64_t)-gpupool_region_end());
	*(CUdeviceptr *)arg = once_in("b", 7 * MIB);
	return NULL;
}

static void threads(void)
{
	CUdeviceptr ptrs[4], first, second, third;
	pthread_t thread;

	app_start();
	(void)gpupool_region_begin("a");
	ptrs[0] = app_alloc(7 * MIB);
	ptrs[1] = app_alloc(7 * MIB);
	first = ptrs[0];
	second = ptrs[1];
	APP_MUST(pthread_create(&thread, NULL, free_elsewhere, ptrs));
	APP_MUST(pthread_join(thread, NULL));
	app_fact("b got another block", ptrs[2] != first && ptrs[2] != second);
	app_fact("a got its block again", ptrs[3] == first || ptrs[3] == second);
	APP_MUST(pthread_create(&thread, NULL, look_elsewhere, &third));
	APP_MUST(pthread_join(thread, NULL));
	app_fact("b got its block again", third == ptrs[2]);
	third = once(7 * MIB);
	app_fact("main thread still in a", third == first || third == second);
	app_report_driver();
}

/* Frees a block while a kernel writes it on one stream, and allocates it again at once for another stream. */
static void fence(void)
{
	CUstream streams[2];
	uint64_t n_wrong = 0;

	app_start();
	streams[0] = app_stream();
	streams[1] = app_stream();
	for (int i = 0; i < 60; i++) {
		const char *const names[] = {"a", "b"};
		size_t bytes = sizes[(size_t)i % LENGTH(sizes)];
		CUdeviceptr old, new;

		(void)gpupool_region_begin(names[i % 2]);
		old = app_alloc(bytes);
		app_spin_fill(streams[0], old, bytes, 1, MS);
		if (i % 3 == 0)
			(void)gpupool_region_end();
		APP_MUST(i % 5 ? cuMemFree_v2(old) : cuMemFreeAsync(old, streams[0]));
		if (i % 3 == 0)
			(void)gpupool_region_begin(names[i % 2]);
		new = app_alloc(bytes);
		app_fill(streams[1], new, bytes, (uint32_t)i + 7);
		n_wrong += app_count_wrong(streams[1], new, bytes, (uint32_t)i + 7);
		APP_MUST(cuMemFree_v2(new));
		(void)gpupool_region_end();
	}
	app_fact("wrong words", n_wrong);
	app_report_driver();
}

/* Requests most of the device in one region, in another, and outside of both. */
static void full(void)
{
	CUstream stream;
	CUdeviceptr ptr;

	app_start();
	stream = app_stream();
	(void)once_in("a", 700 * MIB);
	app_fact("failed in b", (uint64_t)(once_in("b", 700 * MIB) == 0));
	(void)gpupool_region_begin("a");
	ptr = app_alloc(700 * MIB);
	app_spin_fill(stream, ptr, MIB, 3, 50 * MS);
	APP_MUST(cuMemFree_v2(ptr));
	(void)gpupool_region_end();
	/* The driver's own free would have waited for the kernel. */
	app_result("after a", cuMemAlloc_v2(&ptr, 600 * MIB));
	APP_MUST(cuMemFree_v2(ptr));
	(void)gpupool_region_begin("b");
	app_result("after none", cuMemAlloc_v2(&ptr, 700 * MIB));
	app_spin_fill(stream, ptr, MIB, 3, 50 * MS);
	APP_MUST(cuMemFreeAsync(ptr, stream));
	(void)gpupool_region_end();
	app_result("after b", cuMemAllocAsync(&ptr, 600 * MIB, stream));
	app_result("too much", cuMemAlloc_v2(&ptr, 2000 * MIB));
	app_fact("ooms", status().ooms);
	app_report_driver();
}

static void *free_there(void *arg)
{
	APP_MUST(cuCtxSetCurrent(app_ctx));
	APP_MUST(cuMemFree_v2(*(const CUdeviceptr *)arg));
	return NULL;
}

/* Memory from another region is pending behind work that all later work was made to wait for. */
static void behind(void)
{
	CUdeviceptr ptr, in_b;
	pthread_t thread;
	CUstream stream;

	app_start();
	stream = app_stream();
	(void)once_in("a", 700 * MIB);
	ptr = app_alloc(700 * KIB);
	(void)app_alloc(KIB);
	app_spin_fill(stream, ptr, KIB, 3, 300 * MS);
	APP_MUST(pthread_create(&thread, NULL, free_there, &ptr));
	APP_MUST(pthread_join(thread, NULL));
	(void)gpupool_region_begin("b");
	app_result("in b", cuMemAlloc_v2(&in_b, 700 * MIB));
	app_report_driver();
}

/* Memory that is free in a region, but in parts, is missing outside. */
static void parts(void)
{
	CUdeviceptr ptrs[40], large;

	app_start();
	(void)gpupool_region_begin("a");
	for (size_t i = 0; i < LENGTH(ptrs); i++)
		ptrs[i] = app_alloc(10 * MIB);
	(void)gpupool_region_end();
	for (size_t i = 0; i < LENGTH(ptrs); i += 2)
		APP_MUST(cuMemFree_v2(ptrs[i]));
	app_result("large", cuMemAlloc_v2(&large, 700 * MIB));
	app_pause("parts");
}

static void invalidate(void)
{
	CUdeviceptr busy, kept, small;
	uint64_t total;

	app_start();
	(void)gpupool_region_begin("mine");
	busy = app_alloc(6 * MIB);
	small = app_alloc(4 * KIB);
	kept = once(40 * MIB);
	(void)once(8 * KIB);
	(void)gpupool_region_end();
	total = status().total_bytes;
	app_fact("released", (uint64_t)gpupool_region_invalidate("mine"));
	app_fact("total shrank by", total - status().total_bytes);
	app_fact("used", status().used_bytes);
	APP_MUST(cuMemFree_v2(busy));
	APP_MUST(cuMemFree_v2(small));
	APP_MUST(cuCtxSynchronize());
	(void)gpupool_region_begin("mine");
	app_fact("region serves again", app_alloc(6 * MIB) != 0);
	(void)gpupool_region_end();
	(void)gpupool_reclaim(0);
	app_fact("left by reclaim", status().total_bytes);
	app_fact("cached again", once_in("mine", 40 * MIB) == once_in("mine", 40 * MIB));
	app_fact("another address", kept != 0);
	app_fact("unknown region", (uint64_t)gpupool_region_invalidate("yours"));
	app_pause("invalidate");
	app_fact("total", status().total_bytes);
}

static CUdeviceptr once_on(CUstream stream, size_t bytes)
{
	CUdeviceptr ptr;

	APP_MUST(cuMemAllocAsync(&ptr, bytes, stream));
	APP_MUST(cuMemFreeAsync(ptr, stream));
	return ptr;
}

static void in_stream_order(void)
{
	CUdeviceptr inside;
	CUstream stream;
	uint64_t total;

	app_start();
	stream = app_stream();
	(void)gpupool_region_begin("mine");
	(void)once(40 * MIB);
	inside = once_on(stream, 40 * MIB);
	(void)gpupool_region_end();
	app_result("inside again", once_on(stream, 40 * MIB) == inside);
	(void)gpupool_region_begin("mine");
	app_result("inside again, inside", once_on(stream, 40 * MIB) == inside);
	(void)gpupool_region_end();
	APP_MUST(cuCtxSynchronize());
	total = status().total_bytes;
	app_fact("released", (uint64_t)gpupool_region_invalidate("mine"));
	app_fact("total shrank by", total - status().total_bytes);
	total = app_calls("cuMemCreate");
	(void)gpupool_region_begin("yours");
	(void)once_on(stream, MIB);
	(void)gpupool_region_end();
	app_fact("chunks of a second region", app_calls("cuMemCreate") - total);
	app_fact("by the driver", app_calls("cuMemAllocAsync"));
	app_report_driver();
}

static bool inject(const char *spec)
{
	bool (*fault)(const char *) = (bool (*)(const char *))app_simulator("simgpu_fault");

	return fault(spec);
}

/* The driver has no addresses for a second pool in stream order. */
static void without_addresses(void)
{
	CUdeviceptr inside;
	CUstream stream;
	uint64_t plain;
	char spec[64];

	app_start();
	stream = app_stream();
	(void)gpupool_region_begin("mine");
	APP_MUST(cuMemAllocAsync(&inside, MIB, stream));
	(void)gpupool_region_end();
	plain = app_calls("cuMemAlloc_v2");
	snprintf(spec, sizeof(spec), "cuMemAddressReserve:%u+=2", (unsigned)app_calls("cuMemAddressReserve") + 1);
	app_fact("faults", inject(spec));
	for (unsigned i = 0; i < 3; i++)
		APP_MUST(cuMemAllocAsync(&inside, 32 * MIB, stream));
	app_fact("plain memory in stream order", app_calls("cuMemAlloc_v2") - plain);
	(void)gpupool_region_begin("yours");
	inside = once(40 * MIB);
	(void)gpupool_region_end();
	app_fact("reused outside", once(40 * MIB) == inside);
	app_report_driver();
}

/* The pools of regions end with their context, and regions work again in the next one. */
static void reset(void)
{
	CUdeviceptr ptr;
	size_t before = 0, after = 0, total;

	app_start();
	(void)gpupool_region_begin("a");
	ptr = app_alloc(3 * MIB);
	(void)once(2 * MIB);
	(void)once(9 * KIB);
	APP_MUST(cuMemGetInfo_v2(&before, &total));
	(void)once(50 * MIB);
	APP_MUST(cuMemGetInfo_v2(&after, &total));
	app_fact("free is unchanged", before == after);
	APP_MUST(cuDevicePrimaryCtxReset_v2(0));
	app_result("free", cuMemFree_v2(ptr));
	app_fact("total", status().total_bytes);
	APP_MUST(cuDevicePrimaryCtxRetain(&app_ctx, 0));
	APP_MUST(cuCtxSetCurrent(app_ctx));
	ptr = once(2 * MIB);
	total = status().misses;
	(void)once(2 * MIB);
	app_fact("second miss", status().misses - total);
	(void)gpupool_region_end();
	app_fact("not reused outside", once(2 * MIB) != ptr);
	APP_MUST(cuDevicePrimaryCtxRelease_v2(0));
}

/* Creates more regions than the library supports. */
static void many(void)
{
	CUdeviceptr ptrs[REGIONS];
	uint64_t n_new = 0;
	char name[32];

	app_start();
	for (int i = 0; i < REGIONS; i++) {
		snprintf(name, sizeof(name), "region %d", i);
		(void)gpupool_region_begin(name);
		(void)gpupool_region_end();
		ptrs[i] = once_in(name, MIB);
		for (int k = 0; k < i; k++)
			n_new += ptrs[k] == ptrs[i];
	}
	app_fact("shared", n_new);
	app_fact("first again", once_in("region 0", MIB) == ptrs[0]);
	app_fact("last region is none", once(MIB) == ptrs[REGIONS - 1]);
}

static void wrong(void)
{
	static const char *const names[] = {NULL, "", "tab\t", "\x7f", "\xc3\xa4",
		"sixty-four characters are one more than a name may have, so no..",
		"sixty-three are not, of which this is an example, or else not."};
	char name[16];

	app_start();
	for (size_t i = 0; i < LENGTH(names); i++) {
		snprintf(name, sizeof(name), "name %zu", i);
		app_fact(name, (uint64_t)-gpupool_region_begin(names[i]));
	}
	app_fact("end", (uint64_t)-gpupool_region_end());
	app_fact("end again", (uint64_t)-gpupool_region_end());
}

/* A function that is called repeatedly. Its temporaries are freed at its end, as by a garbage collector. */
static void step(void)
{
	CUdeviceptr random = app_alloc(100 * MIB), sine = app_alloc(100 * MIB);

	app_fill(NULL, random, KIB, 1);
	app_fill(NULL, sine, KIB, 2);
	APP_MUST(cuMemFree_v2(random));
	APP_MUST(cuMemFree_v2(sine));
}

/* Calls step repeatedly. Each turn leaves a result of a random size, which stays for RESULTS turns. */
static void loop(bool has_region)
{
	static CUdeviceptr results[RESULTS];
	unsigned state = 1;

	app_start();
	for (int i = 0; i < TURNS; i++) {
		CUdeviceptr *result = &results[i % RESULTS];

		if (has_region)
			(void)gpupool_region_begin("loop");
		step();
		if (has_region)
			(void)gpupool_region_end();
		if (*result)
			APP_MUST(cuMemFree_v2(*result));
		*result = app_alloc((1 + app_random(&state) % 60) * MIB);
	}
	app_fact("hits", status().hits);
	app_fact("misses", status().misses);
	app_fact("peak", status().peak_total_bytes);
	app_pause("loop");
	app_report_driver();
}

static void loop_in_none(void)
{
	loop(false);
}

static void loop_in_region(void)
{
	loop(true);
}

enum { THREADS = 4, CHURN = 300 };

static void *churn(void *arg)
{
	unsigned state = (unsigned)(uintptr_t)arg;
	uint64_t n_failed = 0;

	APP_MUST(cuCtxSetCurrent(app_ctx));
	for (int i = 0; i < CHURN; i++) {
		static const char *const names[] = {"a", "b", "c"};
		bool is_in = app_random(&state) % 4 != 0;
		CUdeviceptr ptr;

		if (is_in)
			(void)gpupool_region_begin(names[app_random(&state) % 3]);
		if (cuMemAlloc_v2(&ptr, 1 + app_random(&state) % (3 * MIB)))
			n_failed++;
		else
			APP_MUST(cuMemFree_v2(ptr));
		if (app_random(&state) % 64 == 0)
			(void)gpupool_region_invalidate("b");
		if (is_in)
			(void)gpupool_region_end();
	}
	return (void *)(uintptr_t)n_failed;
}

static void crowd(void)
{
	pthread_t all[THREADS];
	uint64_t n_failed = 0;
	void *result;

	app_start();
	APP_MUST(cuMemFree_v2(app_alloc(KIB)));
	for (uintptr_t i = 0; i < THREADS; i++)
		APP_MUST(pthread_create(&all[i], NULL, churn, (void *)(i + 1)));
	app_pause("crowd");
	for (int i = 0; i < THREADS; i++) {
		APP_MUST(pthread_join(all[i], &result));
		n_failed += (uintptr_t)result;
	}
	app_fact("failed", n_failed);
	app_fact("used", status().used_bytes);
	app_fact("freed now", gpupool_free_now(0) >= 0);
	app_fact("total", status().total_bytes);
	app_report_driver();
}

/*
 * Held shared while memory is in use, and exclusively while the context is retained again. So memory that ended with
 * its context is freed before its address can have another owner.
 */
static pthread_rwlock_t retain_lock = PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP;
static _Atomic uint64_t n_bad;

/* Counts results that a call must not return, even if its context ends meanwhile. */
static void count_bad(CUresult r)
{
	n_bad += !(r == CUDA_SUCCESS || r == CUDA_ERROR_INVALID_VALUE || r == CUDA_ERROR_INVALID_CONTEXT ||
		   r == CUDA_ERROR_CONTEXT_IS_DESTROYED);
}

static void *work_through_ends(void *arg)
{
	static const char *const names[] = {"a", "b", "c", "d"};
	unsigned state = (unsigned)(uintptr_t)arg;

	(void)gpupool_region_begin("outermost");
	for (int i = 0; i < CHURN / 2; i++) {
		CUdeviceptr ptrs[3] = {0};

		pthread_rwlock_rdlock(&retain_lock);
		count_bad(cuCtxSetCurrent(app_ctx));
		(void)gpupool_region_begin(names[app_random(&state) % LENGTH(names)]);
		for (size_t k = 0; k < LENGTH(ptrs); k++)
			count_bad(cuMemAlloc_v2(&ptrs[k], 1 + app_random(&state) % (3 * MIB)));
		if (app_random(&state) % 16 == 0)
			(void)gpupool_region_invalidate("b");
		count_bad(cuMemFree_v2(ptrs[0]));
		(void)gpupool_region_end();
		count_bad(cuMemFree_v2(ptrs[1]));
		count_bad(cuMemFree_v2(ptrs[2]));
		pthread_rwlock_unlock(&retain_lock);
	}
	return NULL;
}

/* Contexts end and return under threads that are in regions and that end inside one. */
static void ends(void)
{
	pthread_t all[THREADS];

	app_start();
	for (uintptr_t i = 0; i < THREADS; i++)
		APP_MUST(pthread_create(&all[i], NULL, work_through_ends, (void *)(i + 1)));
	for (int i = 0; i < 40; i++) {
		APP_MUST(cuDevicePrimaryCtxReset_v2(0));
		pthread_rwlock_wrlock(&retain_lock);
		APP_MUST(cuDevicePrimaryCtxRetain(&app_ctx, 0));
		pthread_rwlock_unlock(&retain_lock);
	}
	for (int i = 0; i < THREADS; i++)
		APP_MUST(pthread_join(all[i], NULL));
	app_fact("bad", n_bad);
	app_fact("used", status().used_bytes);
	app_fact("freed now", gpupool_free_now(0) >= 0);
	app_fact("total", status().total_bytes);
	app_report_driver();
}

static CUdeviceptr kept;

static void free_at_exit(void)
{
	app_result("free at exit", cuMemFree_v2(kept));
}

/* The region begins before the driver starts. This handler runs after the driver's own. */
static void ended(void)
{
	(void)gpupool_region_begin("a");
	(void)atexit(free_at_exit);
	app_start();
	kept = app_alloc(KIB);
	APP_MUST(cuMemFree_v2(app_alloc(KIB)));
}

const struct app_scenario app_scenarios[] = {
	{"apart", apart},
	{"behind", behind},
	{"crowd", crowd},
	{"ended", ended},
	{"ends", ends},
	{"fence", fence},
	{"full", full},
	{"invalidate", invalidate},
	{"in-stream-order", in_stream_order},
	{"without-addresses", without_addresses},
	{"loop", loop_in_none},
	{"loop-region", loop_in_region},
	{"many", many},
	{"nest", nest},
	{"parts", parts},
	{"reset", reset},
	{"threads", threads},
	{"wrong", wrong},
	{NULL},
};
