/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Allocations in stream order: which of them reach the driver, and what becomes of their memory. */

#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "app_async.h"

enum { LOOPS = 200 };

_Atomic unsigned n_asked;

CUdeviceptr take(size_t bytes, CUstream stream)
{
	CUdeviceptr ptr = 0;

	n_asked++;
	APP_MUST(cuMemAllocAsync(&ptr, bytes, stream));
	return ptr;
}

uint64_t calls_of_driver(void)
{
	return app_calls("cuMemAllocAsync") + app_calls("cuMemAllocFromPoolAsync") + app_calls("cuMemAllocAsync_ptsz");
}

static _Atomic bool is_host_free;

void wait_for_host(void *unused)
{
	while (!atomic_load(&is_host_free))
		sched_yield();
}

void let_work_go_on(void)
{
	atomic_store(&is_host_free, true);
}

CUcontext use_in_created(CUdeviceptr ptr, CUstream *ret_stream)
{
	CUcontext ctx;

	APP_MUST(cuCtxCreate_v2(&ctx, 0, 0));
	APP_MUST(cuStreamCreate(ret_stream, CU_STREAM_NON_BLOCKING));
	APP_MUST(cuLaunchHostFunc(*ret_stream, wait_for_host, NULL));
	APP_MUST(cuMemsetD32Async(ptr, 2, 16, *ret_stream));
	return ctx;
}

CUmemoryPool default_pool(int device)
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

uint64_t make_pairs(CUstream stream, unsigned n)
{
	CUdeviceptr ptrs[3];
	uint64_t before = app_calls(NULL) + n;

	for (unsigned i = 0; i < n; i++) {
		for (unsigned k = 0; k < LENGTH(ptrs); k++)
			ptrs[k] = take((100 * KIB) << (5 * k), stream);
		app_fill(stream, ptrs[i % LENGTH(ptrs)], 4 * KIB, i);
		for (unsigned k = 0; k < LENGTH(ptrs); k++)
			APP_MUST(cuMemFreeAsync(ptrs[k], stream));
	}
	return app_calls(NULL) - before;
}

static void pairs(CUstream stream)
{
	(void)make_pairs(stream, 16);
	app_fact("calls", make_pairs(stream, 1000));
	app_report_driver();
}

static void pairs_created(void)
{
	app_start();
	pairs(app_stream());
}

static CUstream blocking_stream(void)
{
	CUstream stream;

	APP_MUST(cuStreamCreate(&stream, 0));
	return stream;
}

static void pairs_blocking(void)
{
	app_start();
	pairs(blocking_stream());
}

static void pairs_legacy(void)
{
	app_start();
	pairs(NULL);
}

static void pairs_per_thread(void)
{
	app_start();
	pairs(CU_STREAM_PER_THREAD);
}

/* With a second context each call asks the driver which one is current, but nothing more. */
static void pairs_with_two_contexts(void)
{
	CUcontext away;

	app_start();
	APP_MUST(cuDevicePrimaryCtxRetain(&away, 1));
	APP_MUST(cuCtxSetCurrent(away));
	APP_MUST(cuCtxSetCurrent(app_ctx));
	pairs(app_stream());
}

/* The legacy stream has had work, as that of a copy when the program began, but it is done. */
static void pairs_later(void)
{
	CUstream stream;

	app_start();
	app_fill(NULL, app_alloc(4 * KIB), 4 * KIB, 1);
	stream = blocking_stream();
	for (unsigned i = 0; i < 4; i++) {
		APP_MUST(cuMemFreeAsync(take(MIB + i * MIB, stream), stream));
		APP_MUST(cuCtxSynchronize());
	}
	pairs(stream);
}

enum { THREADS = 4 };

/* Pairs on streams that begin and end, on one that all threads share, and on default streams. */
static void *pairs_in_thread(void *shared)
{
	size_t wrong = 0;

	APP_MUST(cuCtxSetCurrent(app_ctx));
	for (unsigned i = 0; i < 20; i++) {
		CUstream streams[] = {app_stream(), shared, NULL, CU_STREAM_PER_THREAD};

		for (unsigned k = 0; k < LENGTH(streams); k++) {
			CUdeviceptr ptr = take(64 * KIB, streams[k]);

			app_fill(streams[k], ptr, 4 * KIB, i);
			wrong += app_count_wrong(streams[k], ptr, 4 * KIB, i);
			APP_MUST(cuMemFreeAsync(ptr, streams[k]));
		}
		APP_MUST(cuStreamDestroy_v2(streams[0]));
	}
	return (void *)wrong;
}

static void threads(void)
{
	pthread_t ids[THREADS];
	size_t wrong = 0;
	CUstream shared;

	app_start();
	shared = app_stream();
	for (unsigned i = 0; i < THREADS; i++)
		APP_MUST(pthread_create(&ids[i], NULL, pairs_in_thread, shared));
	for (unsigned i = 0; i < THREADS; i++) {
		void *found;

		APP_MUST(pthread_join(ids[i], &found));
		wrong += (size_t)found;
	}
	app_result("wrong words", (int)wrong);
	app_fact("by the driver", calls_of_driver());
	app_report_driver();
}

/* Returns a function of the driver, by a lookup that no interposer sees. */
static void *find_unseen(const char *name)
{
	void *(*next)(void *, const char *) = (__typeof__(next))dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");

	if (!next)
		next = (__typeof__(next))dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.17");
	return next(dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD), name);
}

/* Makes the primary context current before any hook has seen that it is primary, as a callback in the retain would. */
static void set_current_unseen(void)
{
	CUresult (*retain)(CUcontext *, CUdevice) = (__typeof__(retain))find_unseen("cuDevicePrimaryCtxRetain");
	CUcontext ctx;

	APP_MUST(cuInit(0));
	APP_MUST(retain(&ctx, 0));
	APP_MUST(cuCtxSetCurrent(ctx));
}

static void pairs_retained_late(void)
{
	set_current_unseen();
	app_start();
	pairs(app_stream());
}

static void pairs_retained_unseen(void)
{
	CUstream stream;

	set_current_unseen();
	stream = app_stream();
	for (unsigned i = 0; i < 16; i++)
		APP_MUST(cuMemFreeAsync(take(MIB, stream), stream));
	app_fact("calls", calls_of_driver());
	app_report_driver();
}

static CUstream stream_unseen(unsigned flags)
{
	CUresult (*create)(CUstream *, unsigned) = (__typeof__(create))find_unseen("cuStreamCreate");
	CUstream stream = NULL;

	APP_MUST(create(&stream, flags));
	return stream;
}

/*
 * A block is used on one stream and freed on another, which an operation there would order behind the first. The next
 * owner's work on a third stream waits only for an event on the second one.
 */
enum link { NO_LINK, EVENT_LINK, FREE_LINK };
static void cross(CUstream used, enum link link, CUstream linked, CUstream freed)
{
	CUstream last = stream_unseen(CU_STREAM_NON_BLOCKING);
	CUevent event;
	size_t wrong = 0;

	APP_MUST(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	for (unsigned i = 0; i < 20; i++) {
		CUdeviceptr ptr = take(MIB, freed), other = take(MIB, freed), next;

		/* Without work of its own, the stream knows nothing of the others. */
		APP_MUST(cuCtxSynchronize());
		app_spin_fill(used, ptr, 64 * KIB, i, MS);
		if (link == EVENT_LINK) {
			APP_MUST(cuEventRecord(event, used));
			APP_MUST(cuStreamWaitEvent(linked, event, 0));
		} else if (link == FREE_LINK) {
			APP_MUST(cuMemFreeAsync(other, linked));
		}
		APP_MUST(cuMemFreeAsync(ptr, freed));
		next = take(MIB, freed);
		APP_MUST(cuEventRecord(event, freed));
		APP_MUST(cuStreamWaitEvent(last, event, 0));
		app_fill(last, next, 64 * KIB, ~i);
		wrong += app_count_wrong(last, next, 64 * KIB, ~i);
		APP_MUST(cuMemFreeAsync(next, last));
		if (link != FREE_LINK)
			APP_MUST(cuMemFreeAsync(other, freed));
	}
	app_result("wrong words", (int)wrong);
	app_fact("by the driver", calls_of_driver());
	app_report_driver();
}

static void cross_to_blocking(void)
{
	app_start();
	cross(NULL, NO_LINK, NULL, blocking_stream());
}

static void cross_to_legacy(void)
{
	app_start();
	cross(blocking_stream(), NO_LINK, NULL, NULL);
}

static void cross_from_per_thread(void)
{
	app_start();
	cross(CU_STREAM_PER_THREAD, NO_LINK, NULL, NULL);
}

/* Work of a non-blocking stream, for which a blocking one waits. */
static void cross_by_wait(void)
{
	app_start();
	cross(app_stream(), EVENT_LINK, blocking_stream(), NULL);
}

static void cross_by_wait_of_legacy(void)
{
	app_start();
	cross(app_stream(), EVENT_LINK, NULL, blocking_stream());
}

/* A free on the legacy stream is an operation, which waits for one blocking stream and holds back another. */
static void cross_by_free(void)
{
	app_start();
	cross(blocking_stream(), FREE_LINK, NULL, blocking_stream());
}

/* Work on the legacy stream, before the program's first call in stream order. */
static void cross_before_the_first(void)
{
	CUstream freed, last;
	CUdeviceptr ptr, next;
	CUevent event;

	app_start();
	freed = blocking_stream();
	last = app_stream();
	APP_MUST(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	APP_MUST(cuMemAlloc_v2(&ptr, MIB));
	APP_MUST(cuCtxSynchronize());
	app_spin_fill(NULL, ptr, 64 * KIB, 1, 20 * MS);
	APP_MUST(cuMemFreeAsync(ptr, freed));
	next = take(MIB, freed);
	APP_MUST(cuEventRecord(event, freed));
	APP_MUST(cuStreamWaitEvent(last, event, 0));
	app_fill(last, next, 64 * KIB, 2);
	app_result("wrong words", (int)app_count_wrong(last, next, 64 * KIB, 2));
	APP_MUST(cuMemFreeAsync(next, last));
	app_fact("by the driver", calls_of_driver());
	app_report_driver();
}

/* A program that allocates nothing in stream order. */
static void launches(void)
{
	CUstream streams[20];
	CUdeviceptr ptr;

	app_start();
	APP_MUST(cuMemAlloc_v2(&ptr, MIB));
	for (unsigned i = 0; i < 2 * LENGTH(streams); i++) {
		if (i < LENGTH(streams))
			streams[i] = i % 2 ? app_stream() : blocking_stream();
		app_fill(streams[i % LENGTH(streams)], ptr, 4 * KIB, i);
		APP_MUST(cuCtxSynchronize());
	}
	APP_MUST(cuMemFree_v2(ptr));
	app_fact_calls("cuStreamGetId");
	app_fact_calls("cuDeviceGetDefaultMemPool");
	app_fact_calls("cuDeviceGetMemPool");
	app_report_driver();
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

/* The ways to destroy a stream. */
typedef CUresult destroy_fn(CUstream stream);

static CUresult destroy_linked(CUstream stream)
{
	return cuStreamDestroy_v2(stream);
}

static CUresult destroy_by(const char *symbol, CUstream stream)
{
	destroy_fn *fn = (destroy_fn *)dlsym(dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD), symbol);

	return fn ? fn(stream) : CUDA_ERROR_NOT_FOUND;
}

static CUresult destroy_looked_up(CUstream stream)
{
	return destroy_by("cuStreamDestroy_v2", stream);
}

static CUresult destroy_looked_up_old(CUstream stream)
{
	return destroy_by("cuStreamDestroy", stream);
}

static CUresult destroy_asked_for(CUstream stream)
{
	void *fn = NULL;

	APP_MUST(cuGetProcAddress("cuStreamDestroy", &fn, 4000, 0));
	return ((destroy_fn *)fn)(stream);
}

static CUresult destroy_asked_for_v2(CUstream stream)
{
	void *fn = NULL;

	APP_MUST(cuGetProcAddress_v2("cuStreamDestroy", &fn, 12000, 0, NULL));
	return ((destroy_fn *)fn)(stream);
}

static void *destroy_in_thread(void *stream)
{
	APP_MUST(cuCtxSetCurrent(app_ctx));
	APP_MUST(cuStreamDestroy_v2(stream));
	return NULL;
}

static CUresult destroy_elsewhere(CUstream stream)
{
	pthread_t thread;

	APP_MUST(pthread_create(&thread, NULL, destroy_in_thread, stream));
	return pthread_join(thread, NULL);
}

/* A stream is destroyed while its work runs, and a new one has its handle. */
static void recycled_from(CUstream (*create)(void), destroy_fn *destroy)
{
	CUstream first, stream;
	CUdeviceptr a, b;

	app_start();
	stream = first = create();
	(void)make_pairs(stream, 4);
	a = take(MIB, first);
	app_spin_fill(first, a, 4 * KIB, 1, 1000 * MS);
	APP_MUST(cuMemFreeAsync(a, first));
	for (unsigned i = 0; i < 1000; i++) {
		APP_MUST(destroy(stream));
		stream = create();
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

static void recycled_by(destroy_fn *destroy)
{
	recycled_from(app_stream, destroy);
}

static void recycled(void)
{
	recycled_by(destroy_linked);
}

static void recycled_looked_up(void)
{
	recycled_by(destroy_looked_up);
}

static void recycled_looked_up_old(void)
{
	recycled_by(destroy_looked_up_old);
}

static void recycled_asked_for(void)
{
	recycled_by(destroy_asked_for);
}

static void recycled_asked_for_v2(void)
{
	recycled_by(destroy_asked_for_v2);
}

static void recycled_elsewhere(void)
{
	recycled_by(destroy_elsewhere);
}

/* The end of the stream goes unseen, but the begin of the next one does not. */
static CUresult destroy_unseen(CUstream stream)
{
	return ((destroy_fn *)find_unseen("cuStreamDestroy_v2"))(stream);
}

static void recycled_unseen(void)
{
	recycled_by(destroy_unseen);
}

/* A library intercepts the functions, so neither the end of a stream nor the begin of the next one is seen. */
static CUstream stream_unseen_too(void)
{
	return stream_unseen(CU_STREAM_NON_BLOCKING);
}

static void recycled_behind(void)
{
	(void)dlsym(RTLD_NEXT, "cuStreamDestroy_v2");
	recycled_from(stream_unseen_too, destroy_unseen);
}

/*
 * The primary context ends with its streams, and a stream of the next one has the handle of one of them. Other than
 * that one, it follows the legacy stream. Its begin goes unseen.
 */
static void reset(void)
{
	CUstream first = NULL, stream = NULL;

	app_start();
	/* The simulator uses a handle again only once many others are free. */
	for (unsigned i = 0; i < 600; i++) {
		stream = app_stream();
		first = i == 300 ? stream : first;
	}
	(void)make_pairs(first, 4);
	APP_MUST(cuDevicePrimaryCtxReset_v2(0));
	app_start();
	for (unsigned i = 0; i < 1000 && stream != first; i++)
		stream = stream_unseen(0);
	app_fact("same handle", stream == first);
	cross(NULL, NO_LINK, NULL, stream);
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

/* Steps of a program that uses memory again while its streams work. */
static void steps(void)
{
	enum { STEPS = 12 };
	CUstream streams[2];
	CUdeviceptr work, more, results[STEPS];

	app_start();
	streams[0] = app_stream();
	streams[1] = app_stream();
	for (unsigned i = 0; i < STEPS; i++) {
		CUstream stream = streams[i % 4 == 3];

		work = take(20 * MIB, stream);
		more = take(52 * MIB + 512, stream);
		app_spin_fill(stream, work, 4 * KIB, i, MS / 10);
		APP_MUST(cuMemFreeAsync(work, stream));
		APP_MUST(cuMemFreeAsync(more, stream));
		results[i] = take(i % 3 ? 4 * MIB : 300 * KIB, stream);
		more = take(36 * MIB + 512, stream);
		app_spin_fill(stream, more, 4 * KIB, i, MS / 10);
		APP_MUST(cuMemFreeAsync(more, stream));
		if (i % 4 == 1)
			APP_MUST(cuMemFreeAsync(results[i - 1], stream));
		if (i % 5 == 4)
			APP_MUST(cuCtxSynchronize());
	}
	APP_MUST(cuCtxSynchronize());
	APP_MUST(cuMemFreeAsync(app_alloc(8 * MIB), streams[0]));
	APP_MUST(cuMemFree_v2(results[STEPS - 1]));
	app_pause("end");
	app_report_driver();
}

const struct app_scenario app_scenarios[] = {
	{"created", created},
	{"created-idle", created_idle},
	{"blocking", blocking},
	{"legacy", legacy},
	{"per-thread", per_thread},
	{"pairs-created", pairs_created},
	{"pairs-blocking", pairs_blocking},
	{"pairs-legacy", pairs_legacy},
	{"pairs-per-thread", pairs_per_thread},
	{"pairs-with-two-contexts", pairs_with_two_contexts},
	{"pairs-retained-late", pairs_retained_late},
	{"pairs-retained-unseen", pairs_retained_unseen},
	{"pairs-later", pairs_later},
	{"threads", threads},
	{"cross-to-blocking", cross_to_blocking},
	{"cross-to-legacy", cross_to_legacy},
	{"cross-from-per-thread", cross_from_per_thread},
	{"cross-by-wait", cross_by_wait},
	{"cross-by-wait-of-legacy", cross_by_wait_of_legacy},
	{"cross-by-free", cross_by_free},
	{"crossed-beside-capture", crossed_beside_capture},
	{"crossed-by-driver", crossed_by_driver},
	{"crossed-by-event", crossed_by_event},
	{"crossed-by-foreign", crossed_by_foreign},
	{"crossed-uncached", crossed_uncached},
	{"cross-before-the-first", cross_before_the_first},
	{"launches", launches},
	{"misused", misused},
	{"not-destroyed", not_destroyed},
	{"streams", streams},
	{"early-first", early_first},
	{"early-later", early_later},
	{"recycled", recycled},
	{"recycled-looked-up", recycled_looked_up},
	{"recycled-looked-up-old", recycled_looked_up_old},
	{"recycled-asked-for", recycled_asked_for},
	{"recycled-asked-for-v2", recycled_asked_for_v2},
	{"recycled-elsewhere", recycled_elsewhere},
	{"recycled-unseen", recycled_unseen},
	{"recycled-behind", recycled_behind},
	{"reset", reset},
	{"usual", usual},
	{"usual-legacy", usual_legacy},
	{"other-context", other_context},
	{"chosen-pool", chosen_pool},
	{"chosen-by-location", chosen_by_location},
	{"chosen-and-destroyed", chosen_and_destroyed},
	{"named-pool", named_pool},
	{"named-default-pool", named_default_pool},
	{"pairs-from-made-pool", pairs_from_made_pool},
	{"pairs-from-pool-of-max", pairs_from_pool_of_max},
	{"chosen-pool-of-max", chosen_pool_of_max},
	{"chosen-beside-opened", chosen_beside_opened},
	{"chosen-opened-pool", chosen_opened_pool},
	{"named-pool-of-max", named_pool_of_max},
	{"named-shareable-pool", named_shareable_pool},
	{"books-of-named-pool", books_of_named_pool},
	{"named-pool-to-decompress", named_pool_to_decompress},
	{"named-pool-of-other-use", named_pool_of_other_use},
	{"named-pool-without-account", named_pool_without_account},
	{"named-opened-pool", named_opened_pool},
	{"named-closed-pool", named_closed_pool},
	{"created-current", created_current},
	{"stream-of-other-device", stream_of_other_device},
	{"stream-of-green-context", stream_of_green_context},
	{"full-stream-of-other-device", full_stream_of_other_device},
	{"ended-stream", ended_stream},
	{"no-bytes", no_bytes},
	{"green", green},
	{"no-cache-scope", no_cache_scope},
	{"no-context", no_context},
	{"opened-pool", opened_pool},
	{"opened-with-memory", opened_with_memory},
	{"opened-to-idle", opened_to_idle},
	{"opened-twice", opened_twice},
	{"made-opened-with-memory", made_opened_with_memory},
	{"made-opened-to-idle", made_opened_to_idle},
	{"capture", capture},
	{"capture-elsewhere", capture_elsewhere},
	{"capture-joined", capture_joined},
	{"until-full", until_full},
	{"held", held},
	{"steps", steps},
	{"elsewhere", elsewhere},
	{"elsewhere-legacy", elsewhere_legacy},
	{"elsewhere-blocking", elsewhere_blocking},
	{"elsewhere-ended", elsewhere_ended},
	{"elsewhere-full", elsewhere_full},
	{"elsewhere-many", elsewhere_many},
	{"elsewhere-uncached", elsewhere_uncached},
	{"elsewhere-with-fault", elsewhere_with_fault},
	{"elsewhere-with-refusal", elsewhere_with_refusal},
	{"elsewhere-in-turn", elsewhere_in_turn},
	{"apart", apart},
	{"apart-at-limit", apart_at_limit},
	{"apart-on-the-map", apart_on_the_map},
	{"apart-by-threads", apart_by_threads},
	{"apart-in-created", apart_in_created},
	{"apart-and-synchronous", apart_and_synchronous},
	{"apart-and-ended", apart_and_ended},
	{"apart-and-ended-early", apart_and_ended_early},
	{"outlive-at-limit", outlive_at_limit},
	{"outlive-behind-work", outlive_behind_work},
	{"outlive-elsewhere", outlive_elsewhere},
	{"outlive-by-threads", outlive_by_threads},
	{"outlive-in-capture", outlive_in_capture},
	{"outlive-under-work", outlive_under_work},
	{"outlive-away", outlive_away},
	{"outlive-until-wanted", outlive_until_wanted},
	{"outlive-opened", outlive_opened},
	{"outlive-attributes", outlive_attributes},
	{"outlive-marks", outlive_marks},
	{"outlive-in-destroyed", outlive_in_destroyed},
	{"outlive-unknown", outlive_unknown},
	{"outlive-unknown-user", outlive_unknown_user},
	{"outlive-among-others", outlive_among_others},
	{"outlive-after-many", outlive_after_many},
	{"outlive-one-by-one", outlive_one_by_one},
	{"outlive-in-host-function", outlive_in_host_function},
	{"outlive-in-host", outlive_in_host},
	{"outlive-in-driver", outlive_in_driver},
	{0},
};
