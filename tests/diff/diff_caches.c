/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Thread caches that are full when their thread or context ends, a capture begins, a block is exported, another context
 * is created, or another thread frees a block. The blocks are small, with many of each size, and the GPU keeps up.
 */

#include <pthread.h>

#include "captures.h"

enum { BLOCKS = 40, ROUNDS = 3, THREADS = 3, SLOW_NS = 20000 };

static const size_t sizes[] = {300, 4 * KIB, 64 * KIB, MIB};

/* Allocates, writes, reads and frees blocks of every size. Returns the number of wrong words. */
static size_t churn(CUstream stream)
{
	size_t wrong = 0;

	for (size_t i = 0; i < LENGTH(sizes); i++) {
		CUdeviceptr ptr[BLOCKS];

		for (unsigned n = 0; n < BLOCKS; n++) {
			ptr[n] = app_alloc(sizes[i]);
			app_fill(stream, ptr[n], 256, n);
		}
		for (unsigned n = 0; n < BLOCKS; n++) {
			if (n % 16 == 0)
				wrong += app_count_wrong(stream, ptr[n], 256, n);
			APP_MUST(cuMemFree_v2(ptr[n]));
		}
	}
	return wrong;
}

/* Frees each block while the old owner's work still runs, and uses the new owner's block on another stream. */
static size_t reuse(CUstream slow, CUstream quick)
{
	size_t wrong = 0;

	for (unsigned i = 0; i < BLOCKS; i++) {
		size_t bytes = sizes[i % LENGTH(sizes)];
		CUdeviceptr old = app_alloc(bytes), new;

		if (i % 3 == 0)
			app_spin_fill(slow, old, 256, 0xdead, SLOW_NS);
		else
			app_fill(slow, old, 256, 0xdead);
		APP_MUST(cuMemFree_v2(old));
		new = app_alloc(bytes);
		app_fill(quick, new, 256, i);
		wrong += app_count_wrong(quick, new, 256, i);
		APP_MUST(cuMemFree_v2(new));
	}
	return wrong;
}

static void reused(void)
{
	CUstream slow, quick;
	size_t wrong = 0;

	app_start();
	slow = app_stream();
	quick = app_stream();
	for (unsigned i = 0; i < ROUNDS; i++) {
		wrong += churn(i % 2 ? slow : quick);
		wrong += reuse(slow, quick);
		APP_MUST(cuCtxSynchronize());
	}
	app_say("reused", "%zu wrong words", wrong);
}

static void *churn_and_end(void *arg)
{
	size_t *wrong = arg;
	CUstream slow, quick;

	APP_MUST(cuCtxSetCurrent(app_ctx));
	slow = app_stream();
	quick = app_stream();
	*wrong = churn(quick) + reuse(slow, quick);
	return NULL;
}

static size_t run_threads(void)
{
	pthread_t threads[THREADS];
	size_t wrong[THREADS], all = 0;

	for (unsigned i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, churn_and_end, &wrong[i]);
	for (unsigned i = 0; i < THREADS; i++) {
		pthread_join(threads[i], NULL);
		all += wrong[i];
	}
	return all;
}

static size_t free_bytes(void)
{
	size_t bytes;

	APP_MUST(cuMemGetInfo_v2(&bytes, NULL));
	return bytes;
}

/*
 * Allows for the driver's granularity: it may release more than it took meanwhile, and keep some memory after threads
 * have ended. The blocks of one of our threads are more than this allowance.
 */
static bool is_all_free(size_t before)
{
	return free_bytes() + 32 * MIB >= before;
}

/* When threads have ended, none of their blocks is in use, and other threads can allocate that memory. */
static void ended(void)
{
	size_t wrong = 0, before;

	app_start();
	wrong += churn(NULL);
	before = free_bytes();
	for (unsigned i = 0; i < ROUNDS; i++)
		wrong += run_threads();
	app_say("ended", "%zu wrong words, all is free: %d", wrong, is_all_free(before));
	app_say("afterwards", "%zu wrong words", churn(NULL));
}

/* The key of a destructor of the program. It runs before or after the destructor of the thread cache. */
static pthread_key_t key;

static void free_late(void *arg)
{
	CUdeviceptr *ptr = arg, more;

	APP_MUST(cuCtxSetCurrent(app_ctx));
	APP_MUST(cuMemFree_v2(*ptr));
	more = app_alloc(sizes[2]);
	APP_MUST(cuMemFree_v2(more));
	*ptr = 0;
}

static void *leave_to_destructor(void *arg)
{
	CUdeviceptr *ptr = arg;

	APP_MUST(cuCtxSetCurrent(app_ctx));
	*ptr = app_alloc(sizes[2]);
	pthread_setspecific(key, ptr);
	churn(NULL);
	return NULL;
}

static void in_destructors(void)
{
	CUdeviceptr ptr[2 * THREADS];
	pthread_t thread;
	size_t before;

	app_start();
	churn(NULL);
	before = free_bytes();
	for (unsigned i = 0; i < LENGTH(ptr); i++) {
		if (i % THREADS == 0)
			pthread_key_create(&key, free_late);
		pthread_create(&thread, NULL, leave_to_destructor, &ptr[i]);
		pthread_join(thread, NULL);
	}
	app_say("destructors", "all is free: %d", is_all_free(before));
}

/* After a reset none of the cached blocks is handed out: new blocks are valid memory. */
static void reset(void)
{
	size_t wrong = 0;
	CUdeviceptr ptr;

	for (unsigned i = 0; i < ROUNDS; i++) {
		app_start();
		wrong += churn(NULL);
		ptr = app_alloc(sizes[2]);
		app_result("reset", cuDevicePrimaryCtxReset_v2(0));
		app_result("free of memory of the ended context", cuMemFree_v2(ptr));
		app_result("alloc", cuMemAlloc_v2(&ptr, sizes[2]));
	}
	app_start();
	app_say("reset", "%zu wrong words", wrong + churn(NULL));
}

/* Uses two contexts in turn. A block returns to its own context, even if the other is current at the free. */
static void contexts(void)
{
	CUdeviceptr ptr[BLOCKS];
	size_t wrong = 0;
	CUcontext ctx;
	unsigned n;

	app_start();
	for (unsigned i = 0; i < ROUNDS; i++) {
		wrong += churn(NULL);
		for (n = 0; n < BLOCKS; n++)
			ptr[n] = app_alloc(sizes[2]);
		APP_MUST(cuCtxCreate_v2(&ctx, 0, 0));
		for (n = 0; n < BLOCKS; n++)
			APP_MUST(cuMemFree_v2(ptr[n]));
		for (n = 0; n < BLOCKS; n++)
			ptr[n] = app_alloc(sizes[2]);
		for (n = 0; n < BLOCKS; n += 2)
			APP_MUST(cuMemFree_v2(ptr[n]));
		APP_MUST(cuCtxSetCurrent(app_ctx));
		for (n = 1; n < BLOCKS; n += 2)
			APP_MUST(cuMemFree_v2(ptr[n]));
		wrong += churn(NULL);
		APP_MUST(cuCtxDestroy_v2(ctx));
		app_result("free of memory of the ended context", cuMemFree_v2(ptr[0]));
	}
	app_say("contexts", "%zu wrong words", wrong + churn(NULL));
}

/* Blocks are freed before, in and after a capture, and allocated in it and after it. */
static void captured(void)
{
	CUdeviceptr ptr[BLOCKS];
	CUstream stream, slow;
	CUgraph graph;
	size_t wrong;

	app_start();
	stream = app_stream();
	slow = app_stream();
	wrong = churn(stream);
	for (int mode = GLOBAL; mode <= RELAXED; mode++) {
		exchange(RELAXED);
		for (unsigned n = 0; n < BLOCKS; n++)
			ptr[n] = app_alloc(sizes[n % LENGTH(sizes)]);
		for (unsigned n = 0; n < BLOCKS / 2; n++)
			APP_MUST(cuMemFree_v2(ptr[n]));
		APP_MUST(cuStreamBeginCapture_v2(stream, mode));
		app_spin(stream, 1000);
		for (unsigned n = BLOCKS / 2; n < BLOCKS; n++) {
			app_fill(slow, ptr[n], 256, n);
			APP_MUST(cuMemFree_v2(ptr[n]));
		}
		for (unsigned n = 0; n < BLOCKS; n++)
			ptr[n] = app_alloc(sizes[n % LENGTH(sizes)]);
		app_result(mode_names[mode], cuStreamEndCapture(stream, &graph));
		APP_MUST(cuGraphDestroy(graph));
		for (unsigned n = 0; n < BLOCKS; n++) {
			app_fill(stream, ptr[n], 256, n);
			wrong += app_count_wrong(stream, ptr[n], 256, n);
			APP_MUST(cuMemFree_v2(ptr[n]));
		}
		wrong += churn(stream) + reuse(slow, stream);
	}
	app_say("captured", "%zu wrong words", wrong);
	check_reuse_after("captures with full caches");
}

/* A block that another process may have opened is not handed out again. */
static void exported(void)
{
	CUdeviceptr ptr[BLOCKS], exported_block;
	CUipcMemHandle handle;
	size_t wrong;
	unsigned same = 0;

	app_start();
	wrong = churn(NULL);
	exported_block = app_alloc(sizes[2]);
	for (unsigned n = 0; n < BLOCKS; n++)
		ptr[n] = app_alloc(sizes[2]);
	for (unsigned n = 0; n < BLOCKS; n++)
		APP_MUST(cuMemFree_v2(ptr[n]));
	app_result("export", cuIpcGetMemHandle(&handle, exported_block));
	for (unsigned n = 0; n < BLOCKS; n++) {
		ptr[n] = app_alloc(sizes[2]);
		app_fill(NULL, ptr[n], 256, n);
		same += ptr[n] == exported_block;
	}
	app_result("free", cuMemFree_v2(exported_block));
	app_result("free again", cuMemFree_v2(exported_block));
	for (unsigned n = 0; n < BLOCKS; n++) {
		wrong += app_count_wrong(NULL, ptr[n], 256, n);
		APP_MUST(cuMemFree_v2(ptr[n]));
	}
	app_say("exported", "%zu wrong words, %u at the exported address", wrong + churn(NULL), same);
}

static CUdeviceptr passed_block;

static void *free_passed(void *arg)
{
	APP_MUST(cuCtxSetCurrent(app_ctx));
	*(CUresult *)arg = cuMemFree_v2(passed_block);
	return NULL;
}

static CUresult free_elsewhere(CUdeviceptr ptr)
{
	CUresult r = CUDA_SUCCESS;
	pthread_t thread;

	passed_block = ptr;
	pthread_create(&thread, NULL, free_passed, &r);
	pthread_join(thread, NULL);
	return r;
}

/* Double frees: of a block that is in this thread's cache, and of a block that another thread has freed. */
static void wrong_frees(void)
{
	app_start();
	churn(NULL);
	for (size_t i = 0; i < LENGTH(sizes); i++) {
		CUdeviceptr ptr = app_alloc(sizes[i]);

		app_result("free", cuMemFree_v2(ptr));
		app_result("free again", cuMemFree_v2(ptr));
		app_result("free again in another thread", free_elsewhere(ptr));
		app_result("free inside", cuMemFree_v2(ptr + 1));
		ptr = app_alloc(sizes[i]);
		app_result("free in another thread", free_elsewhere(ptr));
		app_result("free again in this thread", cuMemFree_v2(ptr));
		app_result("free as pinned", cuMemFreeHost((void *)(uintptr_t)ptr));
	}
	app_say("wrong frees", "%zu wrong words", churn(NULL));
}

const struct app_scenario app_scenarios[] = {
	{"reused", reused, 0},
	{"ended", ended, 0},
	{"in-destructors", in_destructors, 0},
	{"reset", reset, 0},
	{"contexts", contexts, 0},
	{"captured", captured, 0},
	{"exported", exported, 0},
	{"wrong-frees", wrong_frees, 0},
	{0},
};
