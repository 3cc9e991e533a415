/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Allocations and frees in stream order: answers, attributes of memory and of the default pool, and the data that each
 * owner of memory reads back, in every order that the API promises.
 */

#include "api/gpupool.h"
#include "tests/preload/app_driver.h"
#include "tests/sim/abi.h"

#include <dlfcn.h>
#include <pthread.h>

enum { ROUNDS = 24, ORDER_MS = 100 };

#define TOUCHED (64 * KIB) /* at most this much of a block is written */

static CUdeviceptr address(const void *ptr)
{
	return (CUdeviceptr)(uintptr_t)ptr;
}

static CUdeviceptr take(size_t bytes, CUstream stream)
{
	CUdeviceptr ptr = 0;

	APP_MUST(cuMemAllocAsync(&ptr, bytes, stream));
	return ptr;
}

static CUstream blocking_stream(void)
{
	CUstream stream;

	APP_MUST(cuStreamCreate(&stream, 0));
	return stream;
}

static CUmemoryPool default_pool(void)
{
	CUmemoryPool pool = NULL;

	APP_MUST(cuDeviceGetDefaultMemPool(&pool, 0));
	return pool;
}

static uint64_t pool_attribute(int attribute)
{
	uint64_t value = 0;

	APP_MUST(cuMemPoolGetAttribute(default_pool(), attribute, &value));
	return value;
}

static CUmemoryPool make_pool(void)
{
	CUmemPoolProps properties = {
		.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0},
	};
	CUmemoryPool pool = NULL;

	APP_MUST(cuMemPoolCreate(&pool, &properties));
	return pool;
}

static void bad_input(void)
{
	CUdeviceptr ptr = 1;
	CUstream stream;

	app_start();
	stream = app_stream();
	app_result("no pointer", cuMemAllocAsync(NULL, MIB, stream));
	app_result("no bytes", cuMemAllocAsync(&ptr, 0, stream));
	app_result("pointer of no bytes", (int)ptr);
	ptr = 1;
	app_result("too many bytes", cuMemAllocAsync(&ptr, SIZE_MAX / 2, stream));
	app_result("pointer of too many bytes", (int)ptr);
	app_result("no pool", cuMemAllocFromPoolAsync(&ptr, MIB, NULL, stream));
	app_result("from the default pool", cuMemAllocFromPoolAsync(&ptr, MIB, default_pool(), stream));
	app_result("free inside", cuMemFreeAsync(ptr + 512, stream));
	app_result("free", cuMemFreeAsync(ptr, stream));
	APP_MUST(cuStreamSynchronize(stream));
	app_result("free again", cuMemFreeAsync(ptr, stream));
	app_result("free of 0", cuMemFreeAsync(0, stream));
	app_result("free of the stack", cuMemFreeAsync(address(&ptr), stream));
	APP_MUST(cuCtxSynchronize());
}

static void describe(const char *name, CUdeviceptr ptr, size_t bytes)
{
	CUmemoryPool pool = NULL;
	CUipcMemHandle handle;
	unsigned is_capable = 7;
	CUdeviceptr base = 0;
	size_t size = 0;
	int type = 0, ordinal = -1;

	printf("%s:\n", name);
	app_result("range", cuMemGetAddressRange_v2(&base, &size, ptr + bytes / 2));
	printf("its base %d, its size %d\n", base == ptr, size == bytes);
	app_result("pool", cuPointerGetAttribute(&pool, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, ptr));
	printf("none %d, default %d\n", pool == NULL, pool == default_pool());
	app_result("type", cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, ptr));
	app_result("ordinal", cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, ptr));
	printf("type %d, ordinal %d\n", type, ordinal);
	app_result("capable", cuPointerGetAttribute(&is_capable, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, ptr));
	printf("capable of legacy IPC: %u\n", is_capable);
	app_result("legacy IPC handle", cuIpcGetMemHandle(&handle, ptr));
}

/* The same memory is allocated in stream order first, and by cuMemAlloc then, or the reverse. */
static void attributes(void)
{
	CUdeviceptr ptr;
	CUstream stream;

	app_start();
	stream = app_stream();
	for (int i = 0; i < 2; i++) {
		ptr = take(MIB, stream);
		APP_MUST(cuStreamSynchronize(stream));
		describe("in stream order", ptr, MIB);
		app_result("free", i ? cuMemFreeAsync(ptr, stream) : cuMemFree_v2(ptr));
		APP_MUST(cuCtxSynchronize());
	}
	APP_MUST(cuMemAllocFromPoolAsync(&ptr, MIB, default_pool(), stream));
	describe("from the default pool", ptr, MIB);
	APP_MUST(cuMemFreeAsync(ptr, stream));
	APP_MUST(cuCtxSynchronize());
}

/* The numbers depend on how each side rounds, so only what the manual promises is printed. */
static void pool_books(void)
{
	uint64_t before, threshold = UINT64_MAX, none = 0, wrong = 5;
	CUmemoryPool pool;
	CUdeviceptr ptr;
	CUstream stream;

	app_start();
	stream = app_stream();
	pool = default_pool();
	app_say("threshold", "%d", (int)pool_attribute(CU_MEMPOOL_ATTR_RELEASE_THRESHOLD));
	app_result("set", cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
	app_say("threshold is set", "%d", pool_attribute(CU_MEMPOOL_ATTR_RELEASE_THRESHOLD) == threshold);
	before = pool_attribute(CU_MEMPOOL_ATTR_USED_MEM_CURRENT);
	app_say("used before", "%d", (int)before);
	ptr = take(8 * MIB, stream);
	app_say("used", "%d", pool_attribute(CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == 8 * MIB);
	app_say("reserved", "%d", pool_attribute(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) >= 8 * MIB);
	APP_MUST(cuMemFreeAsync(ptr, stream));
	APP_MUST(cuStreamSynchronize(stream));
	app_say("used after the free", "%d", (int)pool_attribute(CU_MEMPOOL_ATTR_USED_MEM_CURRENT));
	app_say("used high", "%d", pool_attribute(CU_MEMPOOL_ATTR_USED_MEM_HIGH) == 8 * MIB);
	app_say("reserved high", "%d", pool_attribute(CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH) >= 8 * MIB);
	ptr = take(MIB, stream);
	app_result("restart", cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &none));
	app_say("used high after it", "%d", pool_attribute(CU_MEMPOOL_ATTR_USED_MEM_HIGH) == MIB);
	app_result("free", cuMemFree_v2(ptr));
	APP_MUST(cuCtxSynchronize());
	app_result("trim", cuMemPoolTrimTo(pool, 0));
	app_say("used after cuMemFree and the trim", "%d", (int)pool_attribute(CU_MEMPOOL_ATTR_USED_MEM_CURRENT));
	app_say("reserved after the trim", "%d", (int)pool_attribute(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT));
	app_result("restart", cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, &none));
	app_say("reserved high after it", "%d", (int)pool_attribute(CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH));
	app_result("no pool", cuMemPoolTrimTo(NULL, 0));
	app_result("no value", cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, NULL));
	app_result("no attribute", cuMemPoolGetAttribute(pool, 99, &wrong));
}

/* The default pool has nothing of what cuMemAlloc has allocated. */
static void idle_books(void)
{
	static const int attributes[] = {CU_MEMPOOL_ATTR_USED_MEM_CURRENT, CU_MEMPOOL_ATTR_USED_MEM_HIGH,
		CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH};
	CUdeviceptr ptrs[2];

	app_start();
	for (unsigned i = 0; i < LENGTH(ptrs); i++)
		APP_MUST(cuMemAlloc_v2(&ptrs[i], 8 * MIB));
	APP_MUST(cuMemFree_v2(ptrs[0]));
	for (unsigned i = 0; i < LENGTH(attributes); i++)
		app_say("of cuMemAlloc", "attribute %d: %llu", attributes[i],
			(unsigned long long)pool_attribute(attributes[i]));
	app_result("trim", cuMemPoolTrimTo(default_pool(), 0));
	APP_MUST(cuMemFree_v2(ptrs[1]));
}

/* Work, a free and an allocation follow each other in one stream. */
static size_t reuse_once(CUstream stream, size_t bytes, unsigned value)
{
	size_t touched = bytes < TOUCHED ? bytes : TOUCHED, wrong;
	CUdeviceptr a = take(bytes, stream), b;

	app_spin_fill(stream, a, touched, value, value % 4 * MS / 4);
	APP_MUST(cuMemFreeAsync(a, stream));
	b = take(bytes, stream);
	app_fill(stream, b, touched, value + 1);
	wrong = app_count_wrong(stream, b, touched, value + 1);
	APP_MUST(cuMemFreeAsync(b, stream));
	return wrong;
}

static void same_stream(void)
{
	static const size_t sizes[] = {4 * KIB, MIB, 9 * MIB};
	CUstream streams[4];
	size_t wrong = 0;

	app_start();
	streams[0] = NULL;
	streams[1] = CU_STREAM_PER_THREAD;
	streams[2] = app_stream();
	streams[3] = blocking_stream();
	for (unsigned i = 0; i < LENGTH(streams) * LENGTH(sizes) * ROUNDS; i++)
		wrong += reuse_once(streams[i % LENGTH(streams)], sizes[i / LENGTH(streams) % LENGTH(sizes)], i);
	APP_MUST(cuCtxSynchronize());
	app_say("wrong words", "%zu", wrong);
}

/* A stream allocates what another one has freed while it works. */
static void other_stream(void)
{
	CUstream streams[4];
	size_t wrong = 0;

	app_start();
	streams[0] = NULL;
	streams[1] = CU_STREAM_PER_THREAD;
	streams[2] = app_stream();
	streams[3] = blocking_stream();
	for (unsigned i = 0; i < 16 * 8; i++) {
		CUstream first = streams[i % 4], second = streams[i / 4 % 4];
		CUdeviceptr a = take(MIB, first), b;

		app_spin_fill(first, a, TOUCHED, 1, i % 5 * MS / 4);
		APP_MUST(cuMemFreeAsync(a, first));
		b = take(MIB, second);
		app_fill(second, b, TOUCHED, i + 2);
		APP_MUST(cuCtxSynchronize());
		wrong += app_count_wrong(second, b, TOUCHED, i + 2);
		APP_MUST(cuMemFreeAsync(b, second));
	}
	app_say("wrong words", "%zu", wrong);
}

/*
 * The legacy stream and blocking streams order themselves. An allocation or a free on one of them takes part in that,
 * though no other work is submitted there.
 */
static void implicit(void)
{
	CUstream blocking[2], apart;
	size_t wrong = 0;
	CUdeviceptr a, b;

	app_start();
	blocking[0] = blocking_stream();
	blocking[1] = blocking_stream();
	apart = app_stream();
	for (unsigned i = 0; i < ROUNDS; i++) {
		/* Work of one blocking stream; free and allocation on the legacy stream; work of another one. */
		a = take(MIB, NULL);
		app_spin_fill(blocking[0], a, TOUCHED, 1, MS);
		APP_MUST(cuMemFreeAsync(a, NULL));
		b = take(MIB, NULL);
		app_fill(blocking[1], b, TOUCHED, i + 2);
		wrong += app_count_wrong(blocking[1], b, TOUCHED, i + 2);
		APP_MUST(cuStreamSynchronize(blocking[0]));
		wrong += app_count_wrong(blocking[1], b, TOUCHED, i + 2);
		APP_MUST(cuMemFreeAsync(b, NULL));
		APP_MUST(cuCtxSynchronize());

		/* Work of the legacy stream; free and allocation on a blocking stream; then a wait for that. */
		a = take(MIB, blocking[0]);
		app_spin_fill(NULL, a, TOUCHED, 1, MS);
		APP_MUST(cuMemFreeAsync(a, blocking[0]));
		b = take(MIB, blocking[0]);
		APP_MUST(cuStreamSynchronize(blocking[0]));
		app_fill(apart, b, TOUCHED, i + 3);
		APP_MUST(cuCtxSynchronize());
		wrong += app_count_wrong(apart, b, TOUCHED, i + 3);
		APP_MUST(cuMemFreeAsync(b, apart));
		APP_MUST(cuCtxSynchronize());
	}
	app_say("wrong words", "%zu", wrong);
}

static void call_nothing(CUstream stream)
{
	(void)stream;
}

static void record_event(CUstream stream)
{
	CUevent event;

	APP_MUST(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	APP_MUST(cuEventRecord(event, stream));
}

/* Records an event for all streams of the context. Drivers before CUDA 12.5 cannot. */
static void record_context(CUstream stream)
{
	CUresult (*record)(CUcontext, CUevent) =
		(CUresult(*)(CUcontext, CUevent))dlsym(RTLD_DEFAULT, "cuCtxRecordEvent");
	CUevent event;

	(void)stream;
	APP_MUST(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	if (record)
		(void)record(app_ctx, event);
}

static void launch_kernel(CUstream stream)
{
	app_spin(stream, 1);
}

static void allocate(CUstream stream)
{
	APP_MUST(cuMemFreeAsync(take(MIB, stream), stream));
}

/*
 * A kernel on the first stream sets a flag after a while. A call on the second stream follows, and a kernel or the
 * record of an event on the third. Prints the flag as it is when that kernel or event has completed.
 */
static void order_of(const char *name, const CUstream *streams, void (*call)(CUstream), bool waits_for_event)
{
	volatile uint32_t *flag;
	CUevent event;

	APP_MUST(cuMemHostAlloc((void **)&flag, 64, CU_MEMHOSTALLOC_DEVICEMAP));
	APP_MUST(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	*flag = 0;
	app_spin_fill(streams[0], address((void *)flag), 4, 1, ORDER_MS * MS);
	call(streams[1]);
	if (waits_for_event) {
		APP_MUST(cuEventRecord(event, streams[2]));
		APP_MUST(cuEventSynchronize(event));
	} else {
		app_spin(streams[2], 1);
		APP_MUST(cuStreamSynchronize(streams[2]));
	}
	app_say(name, "flag %u", *flag);
	APP_MUST(cuCtxSynchronize());
	APP_MUST(cuEventDestroy_v2(event));
	APP_MUST(cuMemFreeHost((void *)flag));
}

/*
 * Shows which calls on the legacy stream are barriers between blocking streams, and what an event there covers. The
 * record of an event there is a barrier on an H100 and none on an H200. The pool records events for the context, which
 * must be none anywhere.
 */
static void barriers(void)
{
	CUstream between[3], legacy[3], blocking[3];

	app_start();
	between[0] = blocking_stream();
	between[1] = NULL;
	between[2] = blocking_stream();
	legacy[0] = between[0];
	legacy[1] = legacy[2] = NULL;
	blocking[0] = NULL;
	blocking[1] = blocking[2] = between[0];
	allocate(NULL);
	allocate(between[0]);
	record_event(NULL);
	record_context(NULL);
	app_spin(between[2], 1);
	APP_MUST(cuCtxSynchronize());
	order_of("between blocking streams, nothing", between, call_nothing, false);
	order_of("between blocking streams, a record", between, record_event, false);
	order_of("between blocking streams, a record for the context", between, record_context, false);
	order_of("between blocking streams, a kernel", between, launch_kernel, false);
	order_of("between blocking streams, an allocation and a free", between, allocate, false);
	order_of("event on the legacy stream, nothing", legacy, call_nothing, true);
	order_of("event on the legacy stream, an allocation and a free", legacy, allocate, true);
	order_of("event on a blocking stream, nothing", blocking, call_nothing, true);
	order_of("event on a blocking stream, an allocation and a free", blocking, allocate, true);
}

/* Memory goes to another stream behind an event, and back behind another one. */
static void handed_on(void)
{
	CUstream first, second;
	CUevent there, back;
	size_t wrong = 0;

	app_start();
	first = app_stream();
	second = app_stream();
	APP_MUST(cuEventCreate(&there, CU_EVENT_DISABLE_TIMING));
	APP_MUST(cuEventCreate(&back, CU_EVENT_DISABLE_TIMING));
	for (unsigned i = 0; i < ROUNDS; i++) {
		CUdeviceptr a = take(MIB, first), b;

		APP_MUST(cuEventRecord(there, first));
		APP_MUST(cuStreamWaitEvent(second, there, 0));
		app_spin_fill(second, a, TOUCHED, i, i % 3 * MS / 2);
		APP_MUST(cuEventRecord(back, second));
		APP_MUST(cuStreamWaitEvent(first, back, 0));
		APP_MUST(cuMemFreeAsync(a, first));
		b = take(MIB, first);
		app_fill(first, b, TOUCHED, i + 1);
		APP_MUST(cuCtxSynchronize());
		wrong += app_count_wrong(first, b, TOUCHED, i + 1);
		APP_MUST(cuMemFreeAsync(b, first));
	}
	app_say("wrong words", "%zu", wrong);
}

/* A stream is destroyed after a free on it, and the next stream often has its handle. */
static void destroyed(void)
{
	size_t wrong = 0;

	app_start();
	for (unsigned i = 0; i < ROUNDS; i++) {
		CUstream first = app_stream(), second;
		CUdeviceptr a = take(MIB, first), b;

		app_spin_fill(first, a, TOUCHED, 1, i % 3 * MS);
		APP_MUST(cuMemFreeAsync(a, first));
		APP_MUST(cuStreamDestroy_v2(first));
		second = app_stream();
		b = take(MIB, second);
		app_fill(second, b, TOUCHED, i + 2);
		APP_MUST(cuCtxSynchronize());
		wrong += app_count_wrong(second, b, TOUCHED, i + 2);
		APP_MUST(cuMemFreeAsync(b, second));
		APP_MUST(cuStreamDestroy_v2(second));
	}
	app_say("wrong words", "%zu", wrong);
}

/* A kernel that may begin before the one before it in the stream has ended touches other memory. */
static void early(void)
{
	size_t wrong = 0;
	CUdeviceptr kept;
	CUstream stream;

	app_start();
	stream = app_stream();
	kept = app_alloc(TOUCHED);
	for (unsigned i = 0; i < ROUNDS; i++) {
		CUdeviceptr a = take(MIB, stream), b;

		app_spin_fill(stream, a, TOUCHED, 1, MS);
		app_fill_early(stream, kept, TOUCHED, i);
		APP_MUST(cuMemFreeAsync(a, stream));
		b = take(MIB, stream);
		app_fill(stream, b, TOUCHED, i + 2);
		APP_MUST(cuStreamSynchronize(stream));
		wrong += app_count_wrong(stream, b, TOUCHED, i + 2);
		APP_MUST(cuMemFreeAsync(b, stream));
	}
	app_say("wrong words", "%zu", wrong);
}

/* Either way to free takes memory of either way to allocate. */
static void mixed_frees(void)
{
	CUdeviceptr ptr;
	CUstream stream;

	app_start();
	stream = app_stream();
	for (unsigned i = 0; i < 4; i++) {
		ptr = i & 1 ? app_alloc(MIB) : take(MIB, stream);
		app_spin_fill(stream, ptr, TOUCHED, i, MS);
		/* cuMemFree does not wait for work that uses memory of a pool. */
		if (i == 2)
			APP_MUST(cuStreamSynchronize(stream));
		app_result("free", i & 2 ? cuMemFree_v2(ptr) : cuMemFreeAsync(ptr, stream));
		ptr = i & 1 ? take(MIB, stream) : app_alloc(MIB);
		app_fill(stream, ptr, TOUCHED, i + 8);
		app_say("wrong words", "%zu", app_count_wrong(stream, ptr, TOUCHED, i + 8));
		app_result("free", i & 2 ? cuMemFreeAsync(ptr, stream) : cuMemFree_v2(ptr));
	}
	APP_MUST(cuCtxSynchronize());
}

/* None of these calls waits for work, neither of its stream nor of another one. */
static void no_wait(void)
{
	CUstream busy, idle;
	CUdeviceptr a, b;
	uint32_t *flag;

	app_start();
	APP_MUST(cuMemHostAlloc((void **)&flag, sizeof(*flag), 0));
	*flag = 0;
	busy = app_stream();
	idle = app_stream();
	a = take(8 * MIB, busy);
	APP_MUST(cuStreamSynchronize(busy));
	app_spin_until(busy, flag, 1);
	app_fill(busy, a, TOUCHED, 1);
	APP_MUST(cuMemFreeAsync(a, busy));
	app_result("after a free", cuStreamQuery(busy));
	a = take(8 * MIB, busy);
	app_result("after an allocation on the stream", cuStreamQuery(busy));
	b = take(8 * MIB, idle);
	app_result("after an allocation on another stream", cuStreamQuery(busy));
	APP_MUST(cuMemFreeAsync(b, idle));
	for (unsigned i = 0; i < 64; i++) {
		b = take((size_t)(i + 1) * 64 * KIB, i % 2 ? idle : busy);
		APP_MUST(cuMemFreeAsync(b, i % 2 ? idle : busy));
	}
	app_result("after many", cuStreamQuery(busy));
	APP_MUST(cuMemFreeAsync(a, busy));
	*(volatile uint32_t *)flag = 1;
	APP_MUST(cuCtxSynchronize());
}

/* Allocates from the device's current pool, and tells whether that is the pool. */
static void say_current(const char *what, CUmemoryPool pool, CUstream stream)
{
	CUdeviceptr ptr = take(MIB, stream);
	CUmemoryPool found = NULL;

	APP_MUST(cuPointerGetAttribute(&found, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, ptr));
	app_say(what, "%d", found == pool);
	APP_MUST(cuMemFreeAsync(ptr, stream));
}

/* A driver before CUDA 13.0 has no such function. */
static void choose_by_location(CUmemoryPool pool)
{
	CUresult (*choose)(CUmemLocation *, int, CUmemoryPool) =
		(__typeof__(choose))dlsym(RTLD_DEFAULT, "cuMemSetMemPool");
	CUmemLocation location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};

	app_result("choose by location", choose ? choose(&location, CU_MEM_ALLOCATION_TYPE_PINNED, pool) : 0);
}

/* Pools of the program, and what it does with the default pool. */
static void other_pools(void)
{
	CUmemoryPool own, found = NULL;
	CUdeviceptr ptr;
	CUstream stream;

	app_start();
	stream = app_stream();
	own = make_pool();
	app_result("from a pool", cuMemAllocFromPoolAsync(&ptr, MIB, own, stream));
	APP_MUST(cuPointerGetAttribute(&found, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, ptr));
	app_say("its pool", "%d", found == own);
	app_result("free", cuMemFreeAsync(ptr, stream));
	app_result("choose the pool", cuDeviceSetMemPool(0, own));
	say_current("pool of the chosen one", own, stream);
	app_result("choose the default pool", cuDeviceSetMemPool(0, default_pool()));
	say_current("pool of the default one", default_pool(), stream);
	choose_by_location(own);
	say_current("pool of the one chosen by location", own, stream);
	APP_MUST(cuCtxSynchronize());
	app_result("destroy", cuMemPoolDestroy(own));
	say_current("default pool after that", default_pool(), stream);
	APP_MUST(cuCtxSynchronize());
}

/*
 * In the scenarios with threads the GPU counts the wrong words. The host waits only once, at the end: threads that wait
 * in each round for their streams make the driver trim its pool while the others allocate.
 */
static CUdeviceptr wrong_words;

/*
 * The driver of an H100 (580.159.04) hangs when several threads allocate from its pool as in the scenario "threads". So
 * threads take turns there unless the pool of gpupool serves them, and end only when all work is done.
 */
static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t all_submitted, all_done;
static bool takes_turns;

static void begin_turn(void)
{
	if (takes_turns)
		pthread_mutex_lock(&turn);
}

static void end_turn(void)
{
	if (takes_turns)
		pthread_mutex_unlock(&turn);
}

/* A pool from which the threads allocate by turns with the default pool. */
static CUmemoryPool made_pool;

static CUdeviceptr take_by_turns(unsigned nth, size_t bytes, CUstream stream)
{
	CUdeviceptr ptr = 0;

	if (nth % 2)
		return take(bytes, stream);
	APP_MUST(cuMemAllocFromPoolAsync(&ptr, bytes, made_pool, stream));
	return ptr;
}

static void *work_in_thread(void *arg)
{
	enum { HELD = 6 };
	struct {
		CUdeviceptr ptr;
		CUstream stream;
		size_t bytes;
		unsigned value;
	} held[HELD] = {{0}};
	unsigned random = *(unsigned *)arg + 1;
	CUstream streams[3];

	APP_MUST(cuCtxSetCurrent(app_ctx));
	streams[0] = app_stream();
	streams[1] = app_stream();
	streams[2] = CU_STREAM_PER_THREAD;
	for (unsigned i = 0; i < 150; i++) {
		unsigned k = app_random(&random) % HELD;
		CUstream stream = streams[app_random(&random) % LENGTH(streams)];

		begin_turn();
		if (held[k].ptr) {
			app_add_wrong(held[k].stream, held[k].ptr, 4 * KIB, held[k].value, wrong_words);
			app_spin_fill(held[k].stream, held[k].ptr, 4 * KIB, 1, i % 4 * MS / 20);
			APP_MUST(cuMemFreeAsync(held[k].ptr, held[k].stream));
		}
		held[k].bytes = 4 * KIB << app_random(&random) % 8;
		held[k].value = i + 100;
		held[k].stream = stream;
		held[k].ptr = take_by_turns(i, held[k].bytes, stream);
		app_fill(stream, held[k].ptr, 4 * KIB, held[k].value);
		end_turn();
	}
	begin_turn();
	for (unsigned k = 0; k < HELD; k++)
		if (held[k].ptr)
			APP_MUST(cuMemFreeAsync(held[k].ptr, held[k].stream));
	end_turn();
	pthread_barrier_wait(&all_submitted);
	pthread_barrier_wait(&all_done);
	return NULL;
}

/*
 * Blocks go from thread to thread and from stream to stream, each behind an event. A thread takes a block, makes one of
 * its streams wait for the event, and frees it there.
 */
static struct slot {
	CUdeviceptr ptr;
	CUevent event;
	unsigned value;
} slots[12];
static pthread_mutex_t slots_lock = PTHREAD_MUTEX_INITIALIZER;

static struct slot swap(unsigned i, struct slot slot)
{
	struct slot old;

	pthread_mutex_lock(&slots_lock);
	old = slots[i];
	slots[i] = slot;
	pthread_mutex_unlock(&slots_lock);
	return old;
}

static void finish(struct slot slot, CUstream stream, bool looks)
{
	if (!slot.ptr)
		return;
	APP_MUST(cuStreamWaitEvent(stream, slot.event, 0));
	if (looks)
		app_add_wrong(stream, slot.ptr, 4 * KIB, slot.value, wrong_words);
	app_spin_fill(stream, slot.ptr, 4 * KIB, 1, MS / 20);
	APP_MUST(cuMemFreeAsync(slot.ptr, stream));
	APP_MUST(cuEventDestroy_v2(slot.event));
}

static void *exchange_in_thread(void *arg)
{
	unsigned random = *(unsigned *)arg + 1;
	CUstream streams[4];

	APP_MUST(cuCtxSetCurrent(app_ctx));
	streams[0] = app_stream();
	streams[1] = blocking_stream();
	streams[2] = CU_STREAM_PER_THREAD;
	streams[3] = NULL;
	for (unsigned i = 0; i < 120; i++) {
		CUstream stream = streams[app_random(&random) % LENGTH(streams)];
		struct slot slot = {.value = app_random(&random)};

		slot.ptr = take((size_t)4 * KIB << app_random(&random) % 9, stream);
		app_fill(stream, slot.ptr, 4 * KIB, slot.value);
		APP_MUST(cuEventCreate(&slot.event, CU_EVENT_DISABLE_TIMING));
		APP_MUST(cuEventRecord(slot.event, stream));
		slot = swap(app_random(&random) % LENGTH(slots), slot);
		finish(slot, streams[app_random(&random) % LENGTH(streams)], i % 2);
		if (i % 16 == 15) {
			APP_MUST(cuStreamDestroy_v2(streams[0]));
			streams[0] = app_stream();
		}
	}
	return NULL;
}

enum { THREADS = 4 };

static void in_threads(void *(*work)(void *number))
{
	pthread_t all[THREADS];
	unsigned numbers[THREADS];
	uint64_t wrong;

	wrong_words = app_alloc(sizeof(wrong));
	APP_MUST(cuMemsetD32_v2(wrong_words, 0, sizeof(wrong) / 4));
	APP_MUST(cuCtxSynchronize());
	for (unsigned i = 0; i < THREADS; i++) {
		numbers[i] = i;
		if (pthread_create(&all[i], NULL, work, &numbers[i]))
			exit(71);
	}
	if (work == work_in_thread) {
		pthread_barrier_wait(&all_submitted);
		APP_MUST(cuCtxSynchronize());
		pthread_barrier_wait(&all_done);
	}
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(all[i], NULL);
	for (unsigned i = 0; i < LENGTH(slots); i++)
		finish(swap(i, (struct slot){0}), NULL, true);
	APP_MUST(cuCtxSynchronize());
	APP_MUST(cuMemcpyDtoH_v2(&wrong, wrong_words, sizeof(wrong)));
	app_say("wrong words", "%llu", (unsigned long long)wrong);
}

static bool is_set_to(const char *variable, const char *value)
{
	const char *setting = getenv(variable);

	return setting && !strcmp(setting, value);
}

/* The library is in the process, and serves allocations in stream order. */
static bool is_pooled(void)
{
	return gpupool_version() && !is_set_to("GPUPOOL", "off") && !is_set_to("GPUPOOL_ASYNC", "off") &&
	       !is_set_to("GPUPOOL_POOL", "none") && !getenv("GPUPOOL_DEBUG");
}

static void threads(void)
{
	uint64_t used = 1;

	takes_turns = !is_pooled();
	pthread_barrier_init(&all_submitted, NULL, THREADS + 1);
	pthread_barrier_init(&all_done, NULL, THREADS + 1);
	app_start();
	made_pool = make_pool();
	in_threads(work_in_thread);
	APP_MUST(cuMemPoolGetAttribute(made_pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used));
	app_say("used at the end", "%d", (int)used);
	app_say("used of the default pool", "%d", (int)pool_attribute(CU_MEMPOOL_ATTR_USED_MEM_CURRENT));
}

static void exchange(void)
{
	app_start();
	in_threads(exchange_in_thread);
}

/* Returns false if the memory is gone. */
static bool say_word(CUdeviceptr ptr)
{
	unsigned word = 0;
	CUresult r = cuMemcpyDtoH_v2(&word, ptr, sizeof(word));

	app_result("read", r);
	app_say("word", "%u", word);
	return !r;
}

/*
 * The primary context ends, while the program holds memory that it has allocated in stream order. The driver's pools
 * belong to the device, so all of it keeps its content, and is freed on a stream of the next context.
 */
static void outlive(CUresult (*end)(CUdevice))
{
	CUdeviceptr blocks[5], more;
	CUmemoryPool made;
	CUmemGenericAllocationHandle handle = 0;
	CUstream stream;
	uint64_t used;

	app_start();
	stream = app_stream();
	made = make_pool();
	for (unsigned i = 0; i < 4; i++)
		blocks[i] = take(i ? 4 * MIB : 3 * 4096, stream);
	APP_MUST(cuMemAllocFromPoolAsync(&blocks[4], MIB, made, stream));
	for (unsigned i = 0; i < 5; i++)
		app_fill(stream, blocks[i], i ? TOUCHED : 4096, 5 + i);
	APP_MUST(cuMemFreeAsync(blocks[3], stream));
	APP_MUST(cuStreamSynchronize(stream));
	used = pool_attribute(CU_MEMPOOL_ATTR_USED_MEM_CURRENT);
	app_result("end", end(0));
	app_say("used bytes stay", "%d", pool_attribute(CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == used);
	app_start();
	describe("after the end", blocks[1], 4 * MIB);
	describe("small, after the end", blocks[0], 3 * 4096);
	app_result("its handle", cuMemRetainAllocationHandle(&handle, (void *)(uintptr_t)blocks[1]));
	for (unsigned i = 0; i < 5; i++)
		if (i != 3 && !say_word(blocks[i]))
			return;
	stream = app_stream();
	app_fill(stream, blocks[1], TOUCHED, 77);
	APP_MUST(cuStreamSynchronize(stream));
	say_word(blocks[1]);
	app_result("free inside", cuMemFreeAsync(blocks[1] + 512, stream));
	app_result("free on a new stream", cuMemFreeAsync(blocks[1], stream));
	APP_MUST(cuStreamSynchronize(stream));
	app_result("plain free", cuMemFree_v2(blocks[2]));
	app_result("second free", cuMemFree_v2(blocks[2]));
	app_result("free from the made pool", cuMemFreeAsync(blocks[4], stream));
	app_result("destroy the made pool", cuMemPoolDestroy(made));
	app_result("free in a default stream", cuMemFreeAsync(blocks[0], NULL));
	APP_MUST(cuCtxSynchronize());
	app_result("allocation after the end", cuMemAllocAsync(&more, 4 * MIB, NULL));
	app_result("its free", cuMemFreeAsync(more, NULL));
}

static void reset(void)
{
	outlive(cuDevicePrimaryCtxReset_v2);
}

static void released(void)
{
	outlive(cuDevicePrimaryCtxRelease_v2);
}

const struct app_scenario app_scenarios[] = {
	{"idle-books", idle_books}, /* before any allocation in stream order */
	{"bad-input", bad_input},
	{"attributes", attributes},
	{"pool-books", pool_books},
	{"same-stream", same_stream},
	{"other-stream", other_stream},
	{"implicit", implicit},
	{"barriers", barriers},
	{"handed-on", handed_on},
	{"destroyed", destroyed},
	{"early", early},
	{"mixed-frees", mixed_frees},
	{"no-wait", no_wait},
	{"other-pools", other_pools},
	{"threads", threads},
	{"exchange", exchange},
	{"reset", reset},
	{"released", released},
	{0},
};
