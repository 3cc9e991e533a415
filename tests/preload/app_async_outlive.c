/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Memory in stream order outlives its context: what it costs meanwhile, and each way to free it. */

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>

#include "api/gpupool.h"
#include "app_async.h"

enum { THREADS = 4, BLOCKS = 64, WORDS_BYTES = 64 * KIB };

static uint64_t counted_bytes(void)
{
	struct gpupool_status status;

	APP_MUST(gpupool_get_status(0, &status));
	return status.unpooled_bytes;
}

static CUdeviceptr fill_new(CUstream stream, size_t bytes, unsigned value)
{
	CUdeviceptr ptr = take(bytes, stream);

	APP_MUST(cuMemsetD32Async(ptr, value, WORDS_BYTES / 4, stream));
	APP_MUST(cuStreamSynchronize(stream));
	return ptr;
}

/* Ends the context, and says what gpupool has not given back. */
static void say_leftovers(void)
{
	size_t available, total;

	APP_MUST(cuCtxSynchronize());
	APP_MUST(cuMemGetInfo_v2(&available, &total)); /* asks which frees in stream order are done */
	APP_MUST(cuDevicePrimaryCtxReset_v2(0));
	app_fact("chunks left", app_calls("cuMemCreate") - app_calls("cuMemRelease"));
	app_fact("mappings left", app_calls("cuMemMap") - app_calls("cuMemUnmap"));
	app_fact("bytes left", counted_bytes());
}

/* The memory counts until it is freed. */
void outlive_at_limit(void)
{
	CUdeviceptr large, small, ptr = 0;
	CUstream stream;

	app_start_owner();
	stream = app_stream();
	large = fill_new(stream, 40 * MIB, 1);
	small = fill_new(stream, MIB, 2);
	app_end_owner();
	stream = app_stream();
	app_say("all counted", "%d", counted_bytes() >= 41 * MIB);
	app_result("beyond the limit", cuMemAllocAsync(&ptr, 100 * MIB, stream));
	app_result("free", cuMemFree_v2(large));
	app_result("wrong words of the other", (int)app_count_wrong(stream, small, WORDS_BYTES, 2));
	app_result("up to the limit", cuMemAllocAsync(&ptr, 100 * MIB, stream));
	app_result("its free", cuMemFreeAsync(ptr, stream));
	app_result("free of the other", cuMemFreeAsync(small, stream));
	app_result("free again", cuMemFree_v2(small));
	say_leftovers();
	app_report_driver();
}

struct work {
	CUdeviceptr ptr; /* of memory that has outlived its context */
	CUstream stream; /* of the next context: its work uses the memory until the flag is 1 */
	volatile uint32_t *flag;
};

static struct work work_on_survivor(void)
{
	struct work work;
	void *flag;

	app_start_owner();
	work.ptr = fill_new(app_stream(), 8 * MIB, 1);
	app_end_owner();
	work.stream = app_stream();
	APP_MUST(cuMemHostAlloc(&flag, sizeof(*work.flag), 0));
	work.flag = flag;
	*work.flag = 0;
	app_spin_until(work.stream, flag, 1);
	app_fill(work.stream, work.ptr, WORDS_BYTES, 2);
	return work;
}

/* A free in stream order does not wait, and the memory stays until the work before it has ended. */
void outlive_behind_work(void)
{
	struct work work = work_on_survivor();

	app_result("free", cuMemFreeAsync(work.ptr, work.stream));
	APP_MUST(cuMemFreeAsync(take(MIB, work.stream), work.stream));
	app_say("still there", "%d", counted_bytes() >= 8 * MIB);
	*work.flag = 1;
	APP_MUST(cuStreamSynchronize(work.stream));
	APP_MUST(cuMemFreeAsync(take(2 * MIB, work.stream), work.stream));
	app_fact("bytes left", counted_bytes());
	app_report_driver();
}

/* Two resets, then a context that the program creates, and no context. */
void outlive_elsewhere(void)
{
	CUdeviceptr ptrs[3];
	CUstream stream;
	CUcontext ctx;

	app_start_owner();
	stream = app_stream();
	for (unsigned i = 0; i < 3; i++)
		ptrs[i] = fill_new(stream, 3 * MIB, i);
	app_end_owner();
	app_end_owner();
	stream = app_stream();
	for (unsigned i = 0; i < 3; i++)
		app_result("wrong words", (int)app_count_wrong(stream, ptrs[i], WORDS_BYTES, i));
	app_result("free", cuMemFreeAsync(ptrs[0], NULL));
	APP_MUST(cuCtxCreate_v2(&ctx, 0, 0));
	stream = app_stream();
	APP_MUST(cuMemsetD32Async(ptrs[1], 7, 16, stream));
	app_result("free in a created context", cuMemFreeAsync(ptrs[1], stream));
	APP_MUST(cuCtxSynchronize());
	APP_MUST(cuCtxSetCurrent(NULL));
	app_result("free without a context", cuMemFree_v2(ptrs[2]));
	APP_MUST(cuCtxDestroy_v2(ctx));
	APP_MUST(cuCtxSetCurrent(app_ctx));
	say_leftovers();
	app_report_driver();
}

static CUdeviceptr shared[BLOCKS];

static void *free_share(void *arg)
{
	unsigned first = (unsigned)(uintptr_t)arg;
	CUresult r = CUDA_SUCCESS;

	APP_MUST(cuCtxSetCurrent(app_ctx));
	for (unsigned i = first; i < BLOCKS && !r; i += THREADS)
		r = i % 3 ? cuMemFree_v2(shared[i]) : cuMemFreeAsync(shared[i], NULL);
	return (void *)(uintptr_t)r;
}

/* Threads free blocks of the same chunks. */
void outlive_by_threads(void)
{
	pthread_t threads[THREADS];
	CUstream stream;

	app_start_owner();
	stream = app_stream();
	for (unsigned i = 0; i < BLOCKS; i++)
		shared[i] = fill_new(stream, i % 2 ? 96 * KIB : 3 * MIB, i);
	app_end_owner();
	for (uintptr_t i = 0; i < THREADS; i++)
		APP_MUST(pthread_create(&threads[i], NULL, free_share, (void *)i));
	for (unsigned i = 0; i < THREADS; i++) {
		void *r;

		APP_MUST(pthread_join(threads[i], &r));
		app_result("frees", (int)(uintptr_t)r);
	}
	say_leftovers();
	app_report_driver();
}

/* While a stream captures, frees do not wait, and so succeed. */
void outlive_in_capture(void)
{
	CUdeviceptr one, other;
	CUstream stream, captured;
	CUgraph graph;

	app_start_owner();
	stream = app_stream();
	one = fill_new(stream, 3 * MIB, 1);
	other = fill_new(stream, 3 * MIB, 2);
	app_end_owner();
	stream = app_stream();
	captured = app_stream();
	APP_MUST(cuMemFreeAsync(take(MIB, stream), stream));
	APP_MUST(cuStreamBeginCapture_v2(captured, CU_STREAM_CAPTURE_MODE_RELAXED));
	app_result("free on the captured stream", cuMemFreeAsync(one, captured) != 0);
	app_result("free on another stream", cuMemFreeAsync(one, stream));
	app_result("plain free", cuMemFree_v2(other));
	app_result("the capture ends", cuStreamEndCapture(captured, &graph));
	say_leftovers();
	app_report_driver();
}

/* A plain free does not wait for work, and the memory stays until all work before it has ended. */
void outlive_under_work(void)
{
	struct work work = work_on_survivor();

	app_result("free", cuMemFree_v2(work.ptr));
	app_say("still there", "%d", counted_bytes() >= 8 * MIB);
	*work.flag = 1;
	APP_MUST(cuStreamSynchronize(work.stream));
	say_leftovers();
	app_report_driver();
}

/* The context ends between a free on a stream of another context and the end of that stream's work. */
void outlive_away(void)
{
	CUstream stream;
	CUdeviceptr ptr;
	CUcontext ctx;

	app_start();
	ptr = fill_new(app_stream(), 8 * MIB, 1);
	APP_MUST(cuCtxCreate_v2(&ctx, 0, 0));
	APP_MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	APP_MUST(cuLaunchHostFunc(stream, wait_for_host, NULL));
	APP_MUST(cuMemsetD32Async(ptr, 2, 16, stream));
	app_result("free", cuMemFreeAsync(ptr, stream));
	APP_MUST(cuDevicePrimaryCtxReset_v2(0));
	app_say("still there", "%d", counted_bytes() >= 8 * MIB);
	let_work_go_on();
	app_result("the work", cuStreamSynchronize(stream));
	APP_MUST(cuCtxDestroy_v2(ctx));
	app_start();
	say_leftovers();
	app_report_driver();
}

static void poll(void)
{
	size_t available, total;

	for (unsigned i = 0; i < 4; i++)
		APP_MUST(cuMemGetInfo_v2(&available, &total));
}

static void *destroy(void *ctx)
{
	return (void *)(uintptr_t)cuCtxDestroy_v2(ctx);
}

/* A context is being destroyed, in which work still uses memory that was freed. */
void outlive_in_destroyed(void)
{
	pthread_t thread;
	CUstream stream;
	CUdeviceptr ptr;
	CUcontext ctx;
	void *r;

	app_start_owner();
	ptr = fill_new(app_stream(), 8 * MIB, 1);
	app_end_owner();
	APP_MUST(cuMemFree_v2(app_alloc(MIB)));
	ctx = use_in_created(ptr, &stream);
	app_result("free", cuMemFree_v2(ptr));
	APP_MUST(cuCtxSetCurrent(app_ctx));
	app_stop_calls("cuCtxDestroy_v2", false);
	APP_MUST(pthread_create(&thread, NULL, destroy, ctx));
	app_await_stopped_call();
	poll();
	app_say("still there", "%d", counted_bytes() >= 8 * MIB);
	let_work_go_on();
	app_release_calls();
	APP_MUST(pthread_join(thread, &r));
	app_result("destroy", (int)(uintptr_t)r);
	say_leftovers();
	app_report_driver();
}

/* A context ends, and one appears of which gpupool knows nothing yet, while work in a third one uses the memory. */
void outlive_unknown(void)
{
	CUcontext first, second, unknown;
	CUdeviceptr ptr;
	CUstream stream;

	app_start_owner();
	ptr = fill_new(app_stream(), 8 * MIB, 1);
	app_end_owner();
	APP_MUST(cuMemFree_v2(app_alloc(MIB)));
	APP_MUST(cuCtxCreate_v2(&first, 0, 0));
	APP_MUST(cuMemFree_v2(app_alloc(MIB)));
	second = use_in_created(ptr, &stream);
	APP_MUST(cuMemFree_v2(app_alloc(MIB)));
	app_result("free", cuMemFree_v2(ptr));
	APP_MUST(cuCtxCreate_v2(&unknown, 0, 0));
	APP_MUST(cuCtxDestroy_v2(first));
	APP_MUST(cuCtxSetCurrent(second));
	poll();
	app_say("still there", "%d", counted_bytes() >= 8 * MIB);
	let_work_go_on();
	app_result("the work", cuStreamSynchronize(stream));
	APP_MUST(cuCtxDestroy_v2(unknown));
	APP_MUST(cuCtxDestroy_v2(second));
	APP_MUST(cuCtxSetCurrent(app_ctx));
	say_leftovers();
	app_report_driver();
}

/* No context is current at the free, and of the one that uses the memory gpupool knows nothing. */
void outlive_unknown_user(void)
{
	CUcontext ctx, none = NULL;
	CUdeviceptr ptr;
	CUstream stream;

	app_start_owner();
	ptr = fill_new(app_stream(), 8 * MIB, 1);
	app_end_owner();
	ctx = use_in_created(ptr, &stream);
	do {
		APP_MUST(cuCtxSetCurrent(NULL));
		APP_MUST(cuCtxGetCurrent(&none));
	} while (none);
	app_result("free", cuMemFree_v2(ptr));
	APP_MUST(cuCtxSetCurrent(app_ctx));
	poll();
	app_say("still there", "%d", counted_bytes() >= 8 * MIB);
	let_work_go_on();
	APP_MUST(cuCtxSetCurrent(ctx));
	app_result("the work", cuStreamSynchronize(stream));
	poll();
	APP_MUST(cuCtxDestroy_v2(ctx));
	APP_MUST(cuCtxSetCurrent(app_ctx));
	say_leftovers();
	app_report_driver();
}

/* The process has had more contexts than gpupool asks about at a time. They have ended. */
void outlive_after_many(void)
{
	CUcontext ctxs[70];
	CUdeviceptr ptr;

	app_start();
	for (unsigned i = 0; i < LENGTH(ctxs); i++)
		APP_MUST(cuCtxCreate_v2(&ctxs[i], 0, 0));
	for (unsigned i = 0; i < LENGTH(ctxs); i++)
		APP_MUST(cuCtxDestroy_v2(ctxs[i]));
	app_start_owner();
	ptr = fill_new(app_stream(), 8 * MIB, 1);
	app_end_owner();
	app_result("free", cuMemFree_v2(ptr));
	APP_MUST(cuCtxSynchronize());
	poll();
	app_fact("bytes left", counted_bytes());
	app_report_driver();
}

/* The program allocates nothing in the primary context, but in another one, and selects one that it has destroyed. */
void outlive_among_others(void)
{
	CUcontext ctx, destroyed;
	CUdeviceptr ptr;

	app_start_owner();
	ptr = fill_new(app_stream(), 8 * MIB, 1);
	app_end_owner();
	APP_MUST(cuCtxCreate_v2(&destroyed, 0, 0));
	APP_MUST(cuCtxDestroy_v2(destroyed));
	app_result("destroyed context", cuCtxSetCurrent(destroyed));
	APP_MUST(cuCtxCreate_v2(&ctx, 0, 0));
	APP_MUST(cuMemFree_v2(app_alloc(MIB)));
	app_result("free", cuMemFree_v2(ptr));
	APP_MUST(cuCtxSynchronize());
	poll();
	app_fact("bytes left", counted_bytes());
	app_report_driver();
}

/* Small blocks come back one after the other, and serve an allocation once there are enough. */
void outlive_one_by_one(void)
{
	CUdeviceptr ptrs[40], large = 0;
	CUstream stream;

	app_start_owner();
	stream = app_stream();
	for (unsigned i = 0; i < 40; i++)
		ptrs[i] = fill_new(stream, 2 * MIB, i);
	app_end_owner();
	stream = app_stream();
	for (unsigned i = 0; i < 40; i++) {
		app_spin(stream, 2000000);
		APP_MUST(cuMemFreeAsync(ptrs[i], stream));
	}
	app_result("allocation", cuMemAlloc_v2(&large, 100 * MIB));
	app_report_driver();
}

static void ask_in_host_function(void *ret_r)
{
	size_t available, total;

	*(CUresult *)ret_r = cuMemGetInfo_v2(&available, &total);
}

/* A function that a stream calls may not ask about the work before a free. */
void outlive_in_host_function(void)
{
	CUresult r = CUDA_SUCCESS;
	CUstream stream;
	CUdeviceptr ptr;

	app_start_owner();
	ptr = fill_new(app_stream(), 8 * MIB, 1);
	app_end_owner();
	stream = app_stream();
	APP_MUST(cuLaunchHostFunc(stream, wait_for_host, NULL));
	APP_MUST(cuLaunchHostFunc(stream, ask_in_host_function, &r));
	APP_MUST(cuMemsetD32Async(ptr, 2, 16, stream));
	app_result("free", cuMemFreeAsync(ptr, stream));
	let_work_go_on();
	app_result("the work", cuStreamSynchronize(stream));
	app_result("asked in the function", r);
	say_leftovers();
	app_report_driver();
}

/* Memory that is about to come back serves an allocation for which there is no other. */
void outlive_until_wanted(void)
{
	CUdeviceptr ptr, next = 0;
	CUstream stream;

	app_start_owner();
	ptr = fill_new(app_stream(), 80 * MIB, 1);
	app_end_owner();
	stream = app_stream();
	app_spin(stream, 5000000);
	APP_MUST(cuMemFreeAsync(ptr, stream));
	app_result("allocation in stream order", cuMemAllocAsync(&next, 80 * MIB, stream));
	app_result("its free", cuMemFreeAsync(next, stream));
	say_leftovers();
	app_start_owner();
	ptr = fill_new(app_stream(), 80 * MIB, 1);
	app_end_owner();
	stream = app_stream();
	app_spin(stream, 5000000);
	APP_MUST(cuMemFreeAsync(ptr, stream));
	app_result("allocation", cuMemAlloc_v2(&next, 80 * MIB));
	app_result("free", cuMemFree_v2(next));
	app_report_driver();
}

/* Another device has access to the default pool: set before the end, or after it. */
void outlive_opened(void)
{
	const CUmemAccessDesc access = {
		.location = {CU_MEM_LOCATION_TYPE_DEVICE, 1}, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	CUdeviceptr ptr, other = 0;
	CUcontext ctx;

	for (unsigned is_late = 0; is_late < 2; is_late++) {
		app_start_owner();
		ptr = fill_new(app_stream(), 3 * MIB, 4 + is_late);
		if (!is_late)
			APP_MUST(cuMemPoolSetAccess(default_pool(0), &access, 1));
		app_end_owner();
		if (is_late)
			APP_MUST(cuMemPoolSetAccess(default_pool(0), &access, 1));
		APP_MUST(cuDevicePrimaryCtxRetain(&ctx, 1));
		APP_MUST(cuCtxSetCurrent(ctx));
		APP_MUST(cuMemAlloc_v2(&other, WORDS_BYTES));
		app_result("copy on the other device", cuMemcpyDtoD_v2(other, ptr, WORDS_BYTES));
		APP_MUST(cuMemFree_v2(other));
		APP_MUST(cuDevicePrimaryCtxRelease_v2(1));
		APP_MUST(cuCtxSetCurrent(app_ctx));
		app_result("free", cuMemFree_v2(ptr));
	}
	app_report_driver();
}

/* The program sets an attribute of the memory that the driver has for memory of its pools. */
void outlive_attributes(void)
{
	unsigned on = 1, is_on = 0;
	CUdeviceptr ptr;

	app_start_owner();
	ptr = fill_new(app_stream(), 8 * MIB, 1);
	app_end_owner();
	app_result("synchronous memory operations", cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, ptr));
	app_result("set", cuPointerGetAttribute(&is_on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, ptr));
	app_say("is set", "%u", is_on);
	app_result("what cannot be set", cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, ptr));
	app_report_driver();
}

static void say_marks(const char *when)
{
	uint64_t used, high;

	APP_MUST(cuMemPoolGetAttribute(default_pool(0), CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used));
	APP_MUST(cuMemPoolGetAttribute(default_pool(0), CU_MEMPOOL_ATTR_USED_MEM_HIGH, &high));
	app_say(when, "used %u, high %u", (unsigned)(used / MIB), (unsigned)(high / MIB));
}

static void free_and_wait(CUdeviceptr ptr)
{
	APP_MUST(cuMemFree_v2(ptr));
	APP_MUST(cuCtxSynchronize());
	poll();
}

/* The high-water mark of the default pool, across ends. */
void outlive_marks(void)
{
	CUdeviceptr held, other;
	uint64_t none = 0;

	app_start_owner();
	held = fill_new(app_stream(), 10 * MIB, 1);
	app_end_owner();
	other = fill_new(app_stream(), 20 * MIB, 1);
	free_and_wait(other);
	say_marks("20 freed");
	app_end_owner();
	say_marks("second end");
	other = fill_new(app_stream(), 25 * MIB, 1);
	free_and_wait(held);
	say_marks("10 freed");
	APP_MUST(cuMemPoolSetAttribute(default_pool(0), CU_MEMPOOL_ATTR_USED_MEM_HIGH, &none));
	say_marks("set");
	app_end_owner();
	free_and_wait(other);
	say_marks("25 freed");
	APP_MUST(cuMemPoolSetAttribute(default_pool(0), CU_MEMPOOL_ATTR_USED_MEM_HIGH, &none));
	say_marks("set again");
	app_report_driver();
}

/* At a limit, some of the memory is in the host when its context ends. To the program it is memory of the device. */
void outlive_in_host(void)
{
	CUdeviceptr ptrs[8];
	uint64_t used = 0, reserved = 0;
	int attributes[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE};
	unsigned n_of_device = 0, type, listed_type;
	void *answers[] = {&listed_type};
	size_t wrong = 0;
	CUstream stream;

	app_start_owner();
	stream = app_stream();
	for (unsigned i = 0; i < 8; i++)
		ptrs[i] = fill_new(stream, 40 * MIB, i);
	app_end_owner();
	stream = app_stream();
	for (unsigned i = 0; i < 8; i++) {
		APP_MUST(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, ptrs[i]));
		APP_MUST(cuPointerGetAttributes(1, attributes, answers, ptrs[i]));
		n_of_device += type == CU_MEMORYTYPE_DEVICE && listed_type == CU_MEMORYTYPE_DEVICE;
		wrong += app_count_wrong(stream, ptrs[i], WORDS_BYTES, i);
	}
	APP_MUST(cuMemPoolGetAttribute(default_pool(0), CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used));
	APP_MUST(cuMemPoolGetAttribute(default_pool(0), CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved));
	app_say("of the device", "%u, wrong words %zu", n_of_device, wrong);
	app_say("used is reserved", "%d", used >= 8 * 40 * MIB && reserved >= used);
	app_say("counted", "%d", counted_bytes() <= 128 * MIB);
	for (unsigned i = 0; i < 8; i++)
		APP_MUST(cuMemFree_v2(ptrs[i]));
	say_leftovers();
	app_report_driver();
}

/* Memory that the driver serves. */
void outlive_in_driver(void)
{
	CUdeviceptr ptr;

	app_start_owner();
	ptr = fill_new(app_stream(), 8 * MIB, 1);
	app_end_owner();
	app_fact("bytes counted", counted_bytes());
	app_result("wrong words", (int)app_count_wrong(app_stream(), ptr, WORDS_BYTES, 1));
	app_result("free", cuMemFreeAsync(ptr, NULL));
	app_fact("bytes left", counted_bytes());
	app_report_driver();
}
