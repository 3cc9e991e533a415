/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Frees of memory that work still uses: the calls that wait, and the data that each new owner reads back. */

#include "tests/preload/app_driver.h"
#include "tests/sim/abi.h"

#include <pthread.h>

enum { LONG_MS = 100, LONGER_MS = 1000, ROUNDS = 40 };

#define TOUCHED (64 * KIB) /* at most this much of a block is written */

static CUdeviceptr address(const void *ptr)
{
	return (CUdeviceptr)(uintptr_t)ptr;
}

/* A block is freed while one stream still writes to it, and the next owner writes to it on another stream. */
static void reuse(size_t bytes, CUstream first, CUstream second)
{
	size_t wrong = 0, wrong_copied = 0, n = bytes < TOUCHED ? bytes : TOUCHED;
	static unsigned char text[TOUCHED];

	memset(text, 2, n);
	for (unsigned i = 0; i < ROUNDS; i++) {
		CUdeviceptr a = app_alloc(bytes), b;

		app_spin_fill(first, a, n, 1, i % 5 * MS / 4);
		APP_MUST(cuMemFree_v2(a));
		b = app_alloc(bytes);
		if (i % 2)
			app_fill(second, b, n, 2);
		else
			APP_MUST(cuMemcpyHtoD_v2(b, text, n));
		APP_MUST(cuCtxSynchronize());
		if (i % 2)
			wrong += app_count_wrong(NULL, b, n, 2);
		else
			wrong_copied += app_count_wrong(NULL, b, n, 0x02020202);
		APP_MUST(cuMemFree_v2(b));
	}
	printf("%zu: wrong words %zu, of a copy %zu\n", bytes, wrong, wrong_copied);
}

static void reuse_on(CUstream first, CUstream second)
{
	reuse(4 * KIB, first, second);
	reuse(MIB, first, second);
	reuse(9 * MIB, first, second);
}

static void reuse_same(void)
{
	app_start();
	reuse_on(NULL, NULL);
}

static void reuse_two(void)
{
	app_start();
	reuse_on(app_stream(), app_stream());
}

static void reuse_default(void)
{
	app_start();
	reuse_on(app_stream(), NULL);
	reuse_on(NULL, app_stream());
	reuse_on(CU_STREAM_PER_THREAD, app_stream());
	reuse_on(app_stream(), CU_STREAM_PER_THREAD);
}

static void *reuse_in_thread(void *arg)
{
	size_t *ret_wrong = arg;
	CUstream streams[2];

	APP_MUST(cuCtxSetCurrent(app_ctx));
	streams[0] = app_stream();
	streams[1] = app_stream();
	for (unsigned i = 0; i < ROUNDS; i++) {
		CUdeviceptr a = app_alloc(MIB), b;

		app_spin_fill(streams[0], a, TOUCHED, 1, i % 5 * MS / 10);
		APP_MUST(cuMemFree_v2(a));
		b = app_alloc(MIB);
		app_fill(streams[1], b, TOUCHED, 2);
		*ret_wrong += app_count_wrong(streams[1], b, TOUCHED, 2);
		APP_MUST(cuMemFree_v2(b));
	}
	return NULL;
}

static void reuse_threads(void)
{
	enum { THREADS = 4 };
	pthread_t threads[THREADS];
	size_t wrong[THREADS] = {0}, sum = 0;

	app_start();
	for (unsigned i = 0; i < THREADS; i++)
		if (pthread_create(&threads[i], NULL, reuse_in_thread, &wrong[i]))
			exit(71);
	for (unsigned i = 0; i < THREADS; i++) {
		pthread_join(threads[i], NULL);
		sum += wrong[i];
	}
	printf("wrong words: %zu\n", sum);
}

/* Frees pinned memory while work uses it. The host writes to it next. */
static void reuse_pinned(void)
{
	size_t wrong = 0;
	CUdeviceptr device;
	CUstream stream;

	app_start();
	stream = app_stream();
	device = app_alloc(TOUCHED);
	app_fill(stream, device, TOUCHED, 1);
	for (unsigned i = 0; i < ROUNDS; i++) {
		uint32_t *a, *b;

		APP_MUST(cuMemHostAlloc((void **)&a, MIB, 0));
		app_spin(stream, i % 5 * MS / 4);
		APP_MUST(cuMemcpyDtoHAsync_v2(a, device, TOUCHED, stream));
		APP_MUST(cuMemFreeHost(a));
		APP_MUST(cuMemHostAlloc((void **)&b, MIB, 0));
		for (size_t k = 0; k < TOUCHED / 4; k++)
			b[k] = i + 2;
		APP_MUST(cuStreamSynchronize(stream));
		for (size_t k = 0; k < TOUCHED / 4; k++)
			wrong += b[k] != i + 2;
		APP_MUST(cuMemFreeHost(b));
	}
	printf("wrong words: %zu\n", wrong);
}

/* Prints what shows if a free is a barrier: the state of the stream, and the word that a kernel on it writes. */
static void barrier_of(const char *name, CUstream stream, bool is_pinned, size_t bytes)
{
	volatile uint32_t *flag;
	CUdeviceptr ptr = 0;
	void *host = NULL;

	APP_MUST(cuMemHostAlloc((void **)&flag, 64, CU_MEMHOSTALLOC_DEVICEMAP));
	*flag = 0;
	if (is_pinned)
		APP_MUST(cuMemHostAlloc(&host, bytes, 0));
	else
		ptr = app_alloc(bytes);
	APP_MUST(cuCtxSynchronize());
	app_spin_fill(stream, address((void *)flag), 4, 1, LONG_MS * MS);
	APP_MUST(is_pinned ? cuMemFreeHost(host) : cuMemFree_v2(ptr));
	printf("%s of %zu: flag %u, stream %d\n", name, bytes, *flag, cuStreamQuery(stream));
	APP_MUST(cuCtxSynchronize());
	APP_MUST(cuMemFreeHost((void *)flag));
}

static void barrier(void)
{
	CUstream stream;

	app_start();
	stream = app_stream();
	for (unsigned i = 0; i < 3; i++) {
		barrier_of("free", stream, false, 512);
		barrier_of("free", stream, false, 8 * MIB);
		barrier_of("free behind the default stream", NULL, false, 8 * MIB);
		barrier_of("host free", stream, true, MIB);
	}
}

/*
 * A call that never waits without a pool must not wait with one. The kernel is long, because on a busy machine these
 * calls may take the host 100 ms.
 */
static void no_barrier(void)
{
	CUdeviceptr ptr, fresh;
	CUstream stream;
	void *host;

	app_start();
	stream = app_stream();
	APP_MUST(cuMemFree_v2(app_alloc(8 * MIB)));
	APP_MUST(cuCtxSynchronize());
	ptr = app_alloc(3 * MIB);
	app_spin_fill(stream, ptr, MIB, 1, LONGER_MS * MS);
	APP_MUST(cuMemAlloc_v2(&fresh, 8 * MIB));
	app_result("after a malloc", cuStreamQuery(stream));
	APP_MUST(cuMemAlloc_v2(&fresh, 200 * MIB));
	app_result("after a large malloc", cuStreamQuery(stream));
	APP_MUST(cuMemFreeAsync(ptr, stream));
	app_result("after cuMemFreeAsync", cuStreamQuery(stream));
	APP_MUST(cuMemAlloc_v2(&fresh, 3 * MIB));
	app_result("after a malloc of as much", cuStreamQuery(stream));
	APP_MUST(cuMemHostAlloc(&host, 64 * KIB, 0));
	app_result("after a host malloc", cuStreamQuery(stream));
	APP_MUST(cuMemGetInfo_v2(&(size_t){0}, NULL));
	app_result("after cuMemGetInfo", cuStreamQuery(stream));
	app_result("a wrong free", cuMemFree_v2(fresh + 64));
	app_result("after a wrong free", cuStreamQuery(stream));
	APP_MUST(cuCtxSynchronize());
}

/* Each way to free memory from each way to allocate it, while work uses the memory. */
static void mixed(void)
{
	CUstream streams[3];
	CUdeviceptr ptr, copy;

	app_start();
	streams[0] = NULL;
	streams[1] = CU_STREAM_PER_THREAD;
	streams[2] = app_stream();
	for (unsigned i = 0; i < 12; i++) {
		CUstream stream = streams[i % LENGTH(streams)];

		ptr = app_alloc(MIB);
		app_spin_fill(stream, ptr, 64 * KIB, i, MS);
		app_result("cuMemFreeAsync of cuMemAlloc", cuMemFreeAsync(ptr, stream));
		copy = app_alloc(MIB);
		app_fill(stream, copy, 64 * KIB, i);
		app_result("wrong words", (int)app_count_wrong(stream, copy, 64 * KIB, i));
		app_result("cuMemFree of cuMemAlloc", cuMemFree_v2(copy));
		APP_MUST(cuMemAllocAsync(&ptr, MIB, stream));
		APP_MUST(cuStreamSynchronize(stream));
		app_result("cuMemFree of cuMemAllocAsync", cuMemFree_v2(ptr));
		APP_MUST(cuMemAllocAsync(&ptr, MIB, stream));
		app_spin_fill(stream, ptr, 64 * KIB, i, MS);
		app_result("cuMemFreeAsync of cuMemAllocAsync", cuMemFreeAsync(ptr, stream));
	}
	APP_MUST(cuCtxSynchronize());
}

/* After a stream-ordered free, other frees of the same block are refused. */
static void freed_async(void)
{
	CUdeviceptr ptr;
	CUstream stream;

	app_start();
	stream = app_stream();
	ptr = app_alloc(MIB);
	app_result("cuMemFreeAsync", cuMemFreeAsync(ptr, stream));
	app_result("cuMemFree after cuMemFreeAsync", cuMemFree_v2(ptr));
	APP_MUST(cuStreamSynchronize(stream));
	app_result("cuMemFree after a wait", cuMemFree_v2(ptr));
	app_result("cuMemFreeAsync of NULL", cuMemFreeAsync(0, stream));
	app_result("cuMemFreeAsync of the stack", cuMemFreeAsync(address(&ptr), stream));
	ptr = app_alloc(MIB);
	app_result("cuMemFreeAsync inside", cuMemFreeAsync(ptr + 512, stream));
	app_result("cuMemFree", cuMemFree_v2(ptr));
	ptr = app_alloc(MIB);
	APP_MUST(cuMemFreeAsync(ptr, stream));
	APP_MUST(cuStreamDestroy_v2(stream));
	app_result("synchronise after the end of the stream", cuCtxSynchronize());
	app_result("cuMemFree after the end of the stream", cuMemFree_v2(ptr));
}

/* Default streams belong to the current context: without a context, nothing is freed. */
static void async_without_context(void)
{
	static const CUstream streams[] = {NULL, CU_STREAM_LEGACY, CU_STREAM_PER_THREAD};
	static const size_t sizes[] = {512, 4 * MIB};

	app_start();
	for (unsigned i = 0; i < LENGTH(streams) * LENGTH(sizes); i++) {
		CUdeviceptr ptr = app_alloc(sizes[i / LENGTH(streams)]);

		APP_MUST(cuCtxSetCurrent(NULL));
		app_result("cuMemFreeAsync without a context", cuMemFreeAsync(ptr, streams[i % LENGTH(streams)]));
		APP_MUST(cuCtxSetCurrent(app_ctx));
		app_result("cuMemFree", cuMemFree_v2(ptr));
	}
}

const struct app_scenario app_scenarios[] = {
	{"reuse-same", reuse_same},
	{"reuse-two", reuse_two},
	{"reuse-default", reuse_default},
	{"reuse-threads", reuse_threads},
	{"reuse-pinned", reuse_pinned},
	{"barrier", barrier},
	{"no-barrier", no_barrier},
	{"mixed", mixed},
	{"freed-async", freed_async},
	{"async-without-context", async_without_context},
	{0},
};
