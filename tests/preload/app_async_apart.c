/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Under split, memory in stream order is mapped and comes from a pool of its own: the two pools beside each other. */

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

#include "app_async.h"

enum { THREADS = 8 };

/* Each way to allocate, with each way to free. */
void apart(void)
{
	CUstream stream;
	CUdeviceptr plain, streamed;
	uint64_t n_chunks;

	app_start();
	stream = app_stream();
	plain = app_alloc(MIB);
	n_chunks = app_calls("cuMemCreate");
	streamed = take(MIB, stream);
	app_fact("chunks in stream order", app_calls("cuMemCreate") - n_chunks);
	app_fact("memory of cuMemAlloc", app_calls("cuMemAlloc_v2"));
	app_fill(stream, plain, 64 * KIB, 1);
	app_fill(stream, streamed, 64 * KIB, 2);
	app_result("wrong words of plain memory", (int)app_count_wrong(stream, plain, 64 * KIB, 1));
	app_result("wrong words in stream order", (int)app_count_wrong(stream, streamed, 64 * KIB, 2));
	app_result("free plain memory in stream order", cuMemFreeAsync(plain, stream));
	app_result("free memory of a stream", cuMemFree_v2(streamed));
	app_result("free plain memory again", cuMemFree_v2(plain) != 0);
	app_result("free memory of a stream again", cuMemFreeAsync(streamed, stream) != 0);
	app_fact("by the driver", calls_of_driver());
	app_report_driver();
}

void apart_on_the_map(void)
{
	app_start();
	(void)app_alloc(3 * MIB);
	(void)take(5 * MIB, app_stream());
	app_pause("map");
}

/* Each pool gives back what it has cached before an allocation from the other one fails. */
void apart_at_limit(void)
{
	CUstream stream;
	CUdeviceptr ptr = 0;

	app_start();
	stream = app_stream();
	for (unsigned i = 0; i < 3; i++) {
		APP_MUST(cuMemFree_v2(app_alloc(48 * MIB)));
		APP_MUST(cuMemFreeAsync(take(48 * MIB, stream), stream));
		APP_MUST(cuStreamSynchronize(stream));
	}
	app_result("beyond the limit", cuMemAllocAsync(&ptr, 96 * MIB, stream));
	app_fact("by the driver", calls_of_driver());
	app_report_driver();
}

static _Atomic int callers[THREADS]; /* their ids, set just before the allocation */

static void *take_first(void *arg)
{
	unsigned n = (unsigned)(uintptr_t)arg;
	CUstream stream;
	CUdeviceptr ptr;
	size_t wrong;

	APP_MUST(cuCtxSetCurrent(app_ctx));
	stream = app_stream();
	atomic_store(&callers[n], gettid());
	ptr = take(64 * KIB, stream);
	app_fill(stream, ptr, 64 * KIB, n);
	wrong = app_count_wrong(stream, ptr, 64 * KIB, n);
	APP_MUST(cuMemFreeAsync(ptr, stream));
	return (void *)wrong;
}

/* Several threads make the first allocation in stream order while one of them is inside the driver for it. */
void apart_by_threads(void)
{
	pthread_t threads[THREADS];
	size_t wrong = 0;
	uint64_t n_chunks;

	app_start();
	APP_MUST(cuMemFree_v2(app_alloc(MIB)));
	n_chunks = app_calls("cuMemCreate");
	app_stop_calls("cuMemMap", false);
	for (uintptr_t i = 0; i < THREADS; i++)
		APP_MUST(pthread_create(&threads[i], NULL, take_first, (void *)i));
	app_await_stopped_call();
	for (unsigned i = 0; i < THREADS; i++)
		while (!atomic_load(&callers[i]) || !app_is_asleep(callers[i]))
			sched_yield();
	app_release_calls();
	for (unsigned i = 0; i < THREADS; i++) {
		void *result;

		APP_MUST(pthread_join(threads[i], &result));
		wrong += (size_t)result;
	}
	app_result("wrong words", (int)wrong);
	app_fact("chunks", app_calls("cuMemCreate") - n_chunks);
	app_fact("by the driver", calls_of_driver());
	app_report_driver();
}

/* The program wants synchronous memory operations for memory in stream order. */
void apart_and_synchronous(void)
{
	unsigned on = 1, of_it = 0, of_other = 0;
	CUdeviceptr ptr, other;
	CUstream stream;

	app_start();
	stream = app_stream();
	ptr = take(4 * MIB, stream);
	other = take(4 * MIB, stream);
	app_result("set", cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, ptr));
	APP_MUST(cuPointerGetAttribute(&of_it, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, ptr));
	APP_MUST(cuPointerGetAttribute(&of_other, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, other));
	app_say("is set", "%u, of other memory %u", of_it, of_other);
	/* The driver does not forget it, so nor does the memory get another owner. */
	APP_MUST(cuMemFreeAsync(ptr, stream));
	app_result("reused", take(4 * MIB, stream) == ptr);
	app_fact("flags were set", app_calls("cuCtxSetFlags"));
	app_report_driver();
}

static void *grow_refused(void *unused)
{
	bool (*fault)(const char *spec) = (bool (*)(const char *))app_simulator("simgpu_fault");
	char spec[64];
	CUstream stream;
	CUdeviceptr ptr;

	APP_MUST(cuCtxSetCurrent(app_ctx));
	(void)app_alloc(MIB);
	stream = app_stream();
	(void)take(MIB, stream);
	snprintf(spec, sizeof(spec), "cuMemSetAccess:%u+=801", (unsigned)app_calls("cuMemSetAccess") + 1);
	(void)fault(spec);
	app_stop_calls("cuMemRelease", false);
	app_result("allocation", cuMemAllocAsync(&ptr, 64 * MIB, stream) != 0);
	return NULL;
}

/* Ends the context while a thread is in a call of the driver. */
static void end_under(void *(*fn)(void *))
{
	pthread_t thread;

	app_start();
	APP_MUST(pthread_create(&thread, NULL, fn, NULL));
	app_await_stopped_call();
	app_result("reset", cuDevicePrimaryCtxReset_v2(0));
	app_release_calls();
	APP_MUST(pthread_join(thread, NULL));
}

/* The thread gives back the chunk with which the pool could not grow. */
void apart_and_ended(void)
{
	end_under(grow_refused);
	app_report_driver();
}

static void *take_as_it_ends(void *unused)
{
	CUstream stream;
	CUdeviceptr ptr;

	APP_MUST(cuCtxSetCurrent(app_ctx));
	(void)app_alloc(MIB);
	stream = app_stream();
	app_stop_calls("cuMemSetAccess", true);
	app_result("allocation", cuMemAllocAsync(&ptr, MIB, stream) != 0);
	return NULL;
}

/* The thread makes the pool, and has mapped a chunk for it. */
void apart_and_ended_early(void)
{
	CUstream stream;

	end_under(take_as_it_ends);
	APP_MUST(cuDevicePrimaryCtxRetain(&app_ctx, 0));
	APP_MUST(cuCtxSetCurrent(app_ctx));
	stream = app_stream();
	app_result("free of the next context's", cuMemFreeAsync(take(MIB, stream), stream));
	app_fact("chunks of the device", app_calls("cuMemCreate") - app_calls("cuMemRelease"));
	app_report_driver();
}

/* A context that is created later works with memory in stream order. */
void apart_in_created(void)
{
	CUstream stream, other;
	CUdeviceptr ptr;
	CUcontext ctx;

	app_start();
	stream = app_stream();
	ptr = take(MIB, stream);
	app_fill(stream, ptr, MIB, 5);
	APP_MUST(cuStreamSynchronize(stream));
	APP_MUST(cuCtxCreate_v2(&ctx, 0, 0));
	APP_MUST(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
	app_result("set", cuMemsetD32Async(ptr, 6, MIB / 4, other));
	app_result("wait", cuStreamSynchronize(other));
	APP_MUST(cuCtxSetCurrent(app_ctx));
	app_result("wrong words", (int)app_count_wrong(stream, ptr, MIB, 6));
	app_result("free", cuMemFreeAsync(ptr, stream));
	APP_MUST(cuCtxDestroy_v2(ctx));
	app_report_driver();
}
