/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Memory that is freed while the GPU still works on it, and allocated again for another stream. */

#include <pthread.h>
#include <sched.h>

#include "app_driver.h"

#define CU_STREAM_PER_THREAD ((CUstream)2)

CUresult cuGetExportTable(const void **table, const void *id);

enum { ROUNDS = 48, SLOW_NS = 50000 };

static const size_t bytes = 4 * MIB;    /* size of a block */
static const size_t touched = 64 * KIB; /* bytes of it that each kernel writes: enough for a race */

/* A slow kernel writes the old block while a quick one, on an unrelated stream, writes the new block. */
static void streams(void)
{
	CUstream slow, quick;
	size_t wrong = 0;

	app_start();
	slow = app_stream();
	quick = app_stream();
	for (unsigned i = 0; i < ROUNDS; i++) {
		CUdeviceptr old = app_alloc(bytes), new;

		app_spin_fill(slow, old, touched, 0xdead, SLOW_NS);
		APP_MUST(cuMemFree_v2(old));
		new = app_alloc(bytes);
		app_fill(quick, new, touched, i);
		wrong += app_count_wrong(quick, new, touched, i);
		APP_MUST(cuMemFree_v2(new));
	}
	APP_MUST(cuCtxSynchronize());
	printf("wrong words: %zu\n", wrong);
	app_pause("done");
	app_report_driver();
}

/* The CPU touches the new block first, while a copy into the freed pinned block is still running. */
static void pinned(void)
{
	CUdeviceptr source;
	CUstream stream;
	size_t wrong = 0;

	app_start();
	stream = app_stream();
	source = app_alloc(bytes);
	app_fill(stream, source, touched, 0xdead);
	for (unsigned i = 0; i < ROUNDS; i++) {
		uint32_t *old, *new;

		APP_MUST(cuMemHostAlloc((void **)&old, bytes, 0));
		app_spin(stream, SLOW_NS);
		APP_MUST(cuMemcpyDtoHAsync_v2(old, source, touched, stream));
		APP_MUST(cuMemFreeHost(old));
		APP_MUST(cuMemHostAlloc((void **)&new, bytes, 0));
		for (size_t k = 0; k < touched / 4; k++)
			new[k] = i;
		APP_MUST(cuStreamSynchronize(stream));
		for (size_t k = 0; k < touched / 4; k++)
			wrong += new[k] != i;
		APP_MUST(cuMemFreeHost(new));
	}
	printf("wrong words: %zu\n", wrong);
	app_report_driver();
}

/*
 * A kernel of one context still writes a pinned block that is freed in another context. The driver's own free does
 * not wait for that kernel, so such a program is wrong without the library.
 */
static void pinned_elsewhere(void)
{
	unsigned early = 0, reused = 0;
	uint32_t *old, *new = NULL;
	CUcontext other;
	CUstream stream;
	CUevent done;

	app_start();
	stream = app_stream();
	APP_MUST(cuEventCreate(&done, CU_EVENT_DISABLE_TIMING));
	APP_MUST(cuCtxCreate_v2(&other, 0, 0));
	for (unsigned i = 0; i < ROUNDS; i++) {
		uint32_t *last = new;

		APP_MUST(cuMemHostAlloc((void **)&old, bytes, CU_MEMHOSTALLOC_PORTABLE));
		reused += old == last;
		APP_MUST(cuCtxSetCurrent(app_ctx));
		app_spin_fill(stream, (CUdeviceptr)(uintptr_t)old, touched, i, SLOW_NS);
		APP_MUST(cuEventRecord(done, stream));
		APP_MUST(cuCtxSetCurrent(other));
		APP_MUST(cuMemFreeHost(old));
		APP_MUST(cuMemHostAlloc((void **)&new, bytes, CU_MEMHOSTALLOC_PORTABLE));
		early += new == old &&cuEventQuery(done) == CUDA_ERROR_NOT_READY;
		APP_MUST(cuEventSynchronize(done));
		APP_MUST(cuMemFreeHost(new));
	}
	app_fact("handed out early", early);
	app_fact("used again", reused);
}

static size_t run_loop(void)
{
	size_t wrong = 0;

	for (unsigned i = 0; i < ROUNDS; i++) {
		CUdeviceptr ptr = app_alloc(bytes);

		app_spin_fill(NULL, ptr, touched, i, SLOW_NS);
		if (i % 8 == 0)
			wrong += app_count_wrong(NULL, ptr, touched, i);
		APP_MUST(cuMemFree_v2(ptr));
	}
	return wrong;
}

/* With a single stream, freed blocks are reused without any wait. */
static void loop(void)
{
	app_start();
	printf("wrong words: %zu\n", run_loop());
	app_report_driver();
}

static void *run_loop_in_thread(void *wrong)
{
	APP_MUST(cuCtxSetCurrent(app_ctx));
	*(size_t *)wrong += run_loop();
	return NULL;
}

/* Freed blocks are reused without any wait beside unused streams, too, and by two threads on the legacy stream. */
static void loop_shared(void)
{
	pthread_t thread;
	size_t wrong;

	app_start();
	(void)app_stream();
	wrong = run_loop();
	(void)app_stream();
	APP_MUST(pthread_create(&thread, NULL, run_loop_in_thread, &wrong));
	APP_MUST(pthread_join(thread, NULL));
	wrong += run_loop();
	printf("wrong words: %zu\n", wrong);
	app_report_driver();
}

/* Asks the driver for an interface that the runtime uses, or for an unknown one, and then loops. */
static void loop_interface(const unsigned char *id)
{
	const void *table;

	app_start();
	(void)cuGetExportTable(&table, id);
	printf("wrong words: %zu\n", run_loop());
	app_report_driver();
}

static void loop_known(void)
{
	loop_interface((const unsigned char[16]){
		0x6b, 0xd5, 0xfb, 0x6c, 0x5b, 0xf4, 0xe7, 0x4a, 0x89, 0x87, 0xd9, 0x39, 0x12, 0xfd, 0x9d, 0xf9});
}

static void loop_unknown(void)
{
	loop_interface((const unsigned char[16]){1, 2, 3});
}

/* Loops with blocks that stay in the thread cache, while the GPU falls ever farther behind. */
static void loop_small(void)
{
	CUdeviceptr ptr;

	app_start();
	for (unsigned i = 0; i < 10 * ROUNDS; i++) {
		ptr = app_alloc(512 * KIB);
		app_spin_fill(NULL, ptr, touched, 0xdead, SLOW_NS);
		APP_MUST(cuMemFree_v2(ptr));
	}
	ptr = app_alloc(512 * KIB);
	app_fill(NULL, ptr, touched, 1);
	printf("wrong words: %zu\n", app_count_wrong(NULL, ptr, touched, 1));
	app_report_driver();
}

/*
 * With one thread and no stream, a block is reused while the GPU still writes it, and neither host nor GPU waits. The
 * callers then submit work that is not ordered after the old kernel.
 */
static CUdeviceptr reuse_serially(CUstream stream)
{
	CUdeviceptr old, new;

	app_start();
	old = app_alloc(bytes);
	app_spin_fill(stream, old, touched, 0xdead, SLOW_NS);
	APP_MUST(cuMemFree_v2(old));
	new = app_alloc(bytes);
	printf("used again: %s\n", new == old ? "yes" : "no");
	return new;
}

static void write_out_of_order(CUstream stream, CUdeviceptr ptr)
{
	app_fill(stream, ptr, touched, 1);
	APP_MUST(cuCtxSynchronize());
	printf("wrong words: %zu\n", app_count_wrong(stream, ptr, touched, 1));
}

static void then_stream(void)
{
	CUdeviceptr new = reuse_serially(NULL);

	write_out_of_order(app_stream(), new);
	app_report_driver();
}

/* Launches a kernel that need not wait for the one before it. */
static void then_early(void)
{
	CUdeviceptr new = reuse_serially(NULL);

	app_fill_early(NULL, new, touched, 1);
	APP_MUST(cuCtxSynchronize());
	printf("wrong words: %zu\n", app_count_wrong(NULL, new, touched, 1));
	app_report_driver();
}

/* An unused stream that existed before, for each kind of work. */
static CUstream old_stream;

static CUdeviceptr reuse_beside_stream(void)
{
	app_start();
	old_stream = app_stream();
	return reuse_serially(NULL);
}

static void print_wrong(CUdeviceptr ptr)
{
	APP_MUST(cuCtxSynchronize());
	printf("wrong words: %zu\n", app_count_wrong(old_stream, ptr, touched, 1));
	app_report_driver();
}

static void then_used(void)
{
	CUdeviceptr new = reuse_beside_stream();

	app_fill(old_stream, new, touched, 1);
	print_wrong(new);
}

static void then_memset(void)
{
	CUdeviceptr new = reuse_beside_stream();

	APP_MUST(cuMemsetD32Async(new, 1, touched / 4, old_stream));
	print_wrong(new);
}

static void then_copy(void)
{
	CUdeviceptr new, source;

	app_start();
	source = app_alloc(touched);
	APP_MUST(cuMemsetD32_v2(source, 1, touched / 4));
	APP_MUST(cuCtxSynchronize());
	new = reuse_beside_stream();
	APP_MUST(cuMemcpyDtoDAsync_v2(new, source, touched, old_stream));
	print_wrong(new);
}

static void *write_in_own_stream(void *ptr)
{
	CUdeviceptr new = *(CUdeviceptr *)ptr;

	APP_MUST(cuCtxSetCurrent(app_ctx));
	APP_MUST(cuMemsetD32Async_ptsz(new, 1, touched / 4, NULL));
	APP_MUST(cuCtxSynchronize());
	return NULL;
}

static void then_own(void)
{
	CUdeviceptr new = reuse_serially(CU_STREAM_PER_THREAD);
	pthread_t thread;

	APP_MUST(pthread_create(&thread, NULL, write_in_own_stream, &new));
	APP_MUST(pthread_join(thread, NULL));
	print_wrong(new);
}

static void *write_in_thread(void *ptr)
{
	APP_MUST(cuCtxSetCurrent(app_ctx));
	write_out_of_order(CU_STREAM_PER_THREAD, *(CUdeviceptr *)ptr);
	return NULL;
}

static void then_thread(void)
{
	CUdeviceptr new = reuse_serially(CU_STREAM_PER_THREAD);
	pthread_t thread;

	APP_MUST(pthread_create(&thread, NULL, write_in_thread, &new));
	APP_MUST(pthread_join(thread, NULL));
	app_report_driver();
}

/* Creates a stream during a capture of the thread's own stream, when no GPU wait can be submitted. */
static void then_capture(void)
{
	CUdeviceptr new = reuse_serially(NULL);
	CUstream stream;
	CUgraph graph;

	APP_MUST(cuStreamBeginCapture_v2(CU_STREAM_PER_THREAD, CU_STREAM_CAPTURE_MODE_RELAXED));
	stream = app_stream();
	app_fill(stream, new, touched, 1);
	APP_MUST(cuStreamEndCapture(CU_STREAM_PER_THREAD, &graph));
	write_out_of_order(stream, new);
	app_report_driver();
}

/*
 * A second thread starts after the first has returned from a free, and lets the work end for which that free would
 * have waited. Without the library such a program would have to be written differently.
 */
static struct {
	volatile uint32_t *flag;
	const char *awaited; /* a driver function that the first thread calls meanwhile */
	uint64_t n_calls;    /* calls of it before */
	CUdeviceptr ptr;     /* the block to write, or 0 */
} second;

static void start_second(void)
{
	void *flag;

	app_start();
	APP_MUST(cuMemHostAlloc(&flag, 4 * KIB, 0));
	second.flag = flag;
	*second.flag = 0;
	app_spin_until(CU_STREAM_PER_THREAD, flag, 1);
}

static void *release_in_thread(void *unused)
{
	while (second.awaited && app_calls(second.awaited) == second.n_calls)
		sched_yield();
	APP_MUST(cuCtxSetCurrent(app_ctx));
	if (second.ptr)
		app_fill(CU_STREAM_PER_THREAD, second.ptr, touched, 1);
	*second.flag = 1;
	return NULL;
}

/* Not every free of a small block records a fence. The first thread records the missing fence when it allocates. */
static void second_releases(void)
{
	CUdeviceptr small, large;
	pthread_t thread;

	start_second();
	small = app_alloc(64 * KIB);
	large = app_alloc(bytes);
	APP_MUST(cuMemFree_v2(large));
	APP_MUST(cuMemFree_v2(small));
	for (unsigned i = 0; i < ROUNDS; i++)
		app_alloc(64 * KIB);
	APP_MUST(pthread_create(&thread, NULL, release_in_thread, NULL));
	APP_MUST(pthread_join(thread, NULL));
	APP_MUST(cuCtxSynchronize());
	app_report_driver();
}

/*
 * The first thread creates a context, and that waits for blocks that were reused in serial mode. The second does not
 * wait.
 */
static void second_writes(void)
{
	CUcontext other;
	CUdeviceptr old;
	pthread_t thread;

	start_second();
	old = app_alloc(bytes);
	app_fill(CU_STREAM_PER_THREAD, old, touched, 0xdead);
	APP_MUST(cuMemFree_v2(old));
	second.ptr = app_alloc(bytes);
	second.awaited = "cuEventQuery";
	second.n_calls = app_calls(second.awaited);
	APP_MUST(pthread_create(&thread, NULL, release_in_thread, NULL));
	APP_MUST(cuCtxCreate_v2(&other, 0, 0));
	APP_MUST(pthread_join(thread, NULL));
	APP_MUST(cuCtxSetCurrent(app_ctx));
	APP_MUST(cuCtxSynchronize());
	app_fact("used again", old == second.ptr);
	app_report_driver();
}

const struct app_scenario app_scenarios[] = {
	{"second_releases", second_releases},
	{"second_writes", second_writes},
	{"loop_small", loop_small},
	{"loop_shared", loop_shared},
	{"loop_known", loop_known},
	{"loop_unknown", loop_unknown},
	{"then_used", then_used},
	{"then_memset", then_memset},
	{"then_copy", then_copy},
	{"then_own", then_own},
	{"then_stream", then_stream},
	{"then_early", then_early},
	{"then_thread", then_thread},
	{"then_capture", then_capture},
	{"streams", streams},
	{"pinned", pinned},
	{"pinned-elsewhere", pinned_elsewhere},
	{"loop", loop},
	{0},
};
