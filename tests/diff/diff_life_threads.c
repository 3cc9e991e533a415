/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Contexts end in one thread while other threads work. The result of each call depends on timing, but must be one of
 * the few that the driver could have returned: only that is printed. A real driver does not define a call that overlaps
 * the end of its context, so scenarios with such calls run on the simulator only.
 */

#include <pthread.h>

#include "tests/preload/app_driver.h"
#include "tests/sim/abi.h"

enum { N_THREADS = 8 };

static const size_t sizes[] = {300, 70 * KIB, MIB, 5 * MIB};

static _Atomic unsigned n_bad;

/* Counts calls that failed although they should succeed, and prints the first of them. */
static bool expect_ok(CUresult r, const char *what)
{
	if (r && !n_bad++)
		app_result(what, r);
	return !r;
}

#define EXPECT_OK(call) expect_ok((call), #call)

/* Checks the result of a call that may overlap the end of its context. */
static void expect_defined_result(CUresult r, const char *what)
{
	bool may = r == CUDA_SUCCESS || r == CUDA_ERROR_INVALID_VALUE || r == CUDA_ERROR_INVALID_CONTEXT ||
		   r == CUDA_ERROR_CONTEXT_IS_DESTROYED;

	expect_ok(may ? CUDA_SUCCESS : r, what);
}

static bool is_simulated(void)
{
	APP_MUST(cuInit(0));
	return app_calls("cuInit") > 0;
}

static void run(void *(*work)(void *arg))
{
	pthread_t threads[N_THREADS];

	for (uintptr_t i = 0; i < N_THREADS; i++)
		pthread_create(&threads[i], NULL, work, (void *)i);
	for (unsigned i = 0; i < N_THREADS; i++)
		pthread_join(threads[i], NULL);
}

static void use_block(size_t bytes, uint32_t value)
{
	CUdeviceptr ptr = 0;
	uint32_t word = 0;

	if (!EXPECT_OK(cuMemAlloc_v2(&ptr, bytes)))
		return;
	EXPECT_OK(cuMemsetD32_v2(ptr, value, 16));
	EXPECT_OK(cuMemcpyDtoH_v2(&word, ptr, sizeof(word)));
	expect_ok(word == value ? CUDA_SUCCESS : CUDA_ERROR_ILLEGAL_ADDRESS, "wrong word");
	EXPECT_OK(cuMemFree_v2(ptr));
}

static unsigned n_rounds;

/* Each thread retains the primary context only while it works in it, so the context ends and is created again. */
static void *retain_and_use(void *arg)
{
	unsigned seed = (unsigned)(uintptr_t)arg;

	for (unsigned i = 0; i < n_rounds; i++) {
		CUcontext ctx = NULL;
		void *host = NULL;

		EXPECT_OK(cuDevicePrimaryCtxRetain(&ctx, 0));
		EXPECT_OK(cuCtxSetCurrent(ctx));
		use_block(sizes[app_random(&seed) % LENGTH(sizes)], seed);
		if (i % 4 == 0) {
			EXPECT_OK(cuMemHostAlloc(&host, 4096, 0));
			EXPECT_OK(cuMemFreeHost(host));
		}
		EXPECT_OK(cuDevicePrimaryCtxRelease_v2(0));
		/* The fewer threads hold the context, the more often it ends. */
		if (i % 8 == 0)
			sched_yield();
	}
	return NULL;
}

static void retained(void)
{
	n_rounds = is_simulated() ? 600 : 4;
	run(retain_and_use);
	app_result("bad", (int)n_bad);
	app_result("one release too many", cuDevicePrimaryCtxRelease_v2(0));
}

/*
 * Held for reading while memory is in use, and for writing while the context is created again. So a thread frees memory
 * that ended with the context before another block can get its address.
 */
static pthread_rwlock_t recreation_lock = PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP;

static void *work_through_ends(void *arg)
{
	unsigned seed = (unsigned)(uintptr_t)arg;

	for (unsigned i = 0; i < 300; i++) {
		CUdeviceptr ptr[3] = {0};
		void *host = NULL;

		pthread_rwlock_rdlock(&recreation_lock);
		expect_defined_result(cuCtxSetCurrent(app_ctx), "set current");
		for (unsigned k = 0; k < LENGTH(ptr); k++)
			expect_defined_result(
				cuMemAlloc_v2(&ptr[k], sizes[app_random(&seed) % LENGTH(sizes)]), "alloc");
		expect_defined_result(cuMemHostAlloc(&host, 4096, 0), "pinned alloc");
		expect_defined_result(cuMemFreeHost(host), "pinned free");
		for (unsigned k = 0; k < LENGTH(ptr); k++)
			expect_defined_result(cuMemFree_v2(ptr[k]), "free");
		pthread_rwlock_unlock(&recreation_lock);
	}
	return NULL;
}

static void retain_again(void)
{
	pthread_rwlock_wrlock(&recreation_lock);
	APP_MUST(cuDevicePrimaryCtxRetain(&app_ctx, 0));
	pthread_rwlock_unlock(&recreation_lock);
}

static CUresult reset(void)
{
	return cuDevicePrimaryCtxReset_v2(0);
}

static CUresult release(void)
{
	return cuDevicePrimaryCtxRelease_v2(0);
}

/* T8.3: the primary context ends under threads, by its last release or by a reset. */
static void end_under_threads(CUresult (*end)(void))
{
	pthread_t threads[N_THREADS];

	if (!is_simulated()) {
		printf("skipped: only simulated\n");
		return;
	}
	APP_MUST(cuDevicePrimaryCtxRetain(&app_ctx, 0));
	for (uintptr_t i = 0; i < N_THREADS; i++)
		pthread_create(&threads[i], NULL, work_through_ends, (void *)i);
	for (unsigned i = 0; i < 60; i++) {
		EXPECT_OK(end());
		retain_again();
	}
	for (unsigned i = 0; i < N_THREADS; i++)
		pthread_join(threads[i], NULL);
	app_start();
	use_block(MIB, 1);
	app_result("bad", (int)n_bad);
}

static void reset_under(void)
{
	end_under_threads(reset);
}

static void released_under(void)
{
	end_under_threads(release);
}

/* A context that one thread creates and destroys while the others work in it. */
static _Atomic(CUcontext) shared;
static _Atomic bool is_over;

static void *work_in_shared(void *arg)
{
	unsigned seed = (unsigned)(uintptr_t)arg;

	while (!is_over) {
		CUdeviceptr ptr = 0;

		pthread_rwlock_rdlock(&recreation_lock);
		expect_defined_result(cuCtxSetCurrent(shared), "set current");
		expect_defined_result(cuMemAlloc_v2(&ptr, sizes[app_random(&seed) % LENGTH(sizes)]), "alloc");
		if (app_random(&seed) % 2)
			expect_defined_result(cuCtxSetCurrent(app_ctx), "set current to the primary");
		expect_defined_result(cuMemFree_v2(ptr), "free");
		pthread_rwlock_unlock(&recreation_lock);
	}
	return NULL;
}

static void destroyed_under(void)
{
	pthread_t threads[N_THREADS];
	CUcontext ctx;

	if (!is_simulated()) {
		printf("skipped: only simulated\n");
		return;
	}
	app_start();
	APP_MUST(cuCtxCreate_v2(&ctx, 0, 0));
	shared = ctx;
	for (uintptr_t i = 0; i < N_THREADS; i++)
		pthread_create(&threads[i], NULL, work_in_shared, (void *)i);
	for (unsigned i = 0; i < 100; i++) {
		use_block(MIB, i);
		EXPECT_OK(cuCtxDestroy_v2(shared));
		pthread_rwlock_wrlock(&recreation_lock);
		APP_MUST(cuCtxCreate_v2(&ctx, 0, 0));
		shared = ctx;
		pthread_rwlock_unlock(&recreation_lock);
	}
	is_over = true;
	for (unsigned i = 0; i < N_THREADS; i++)
		pthread_join(threads[i], NULL);
	use_block(MIB, 1);
	APP_MUST(cuCtxDestroy_v2(ctx));
	APP_MUST(cuCtxSetCurrent(app_ctx));
	use_block(MIB, 1);
	app_result("bad", (int)n_bad);
}

/* Threads end and leave blocks in use, cached blocks and pending blocks behind. */
static CUdeviceptr left_blocks[N_THREADS][LENGTH(sizes)];

static void *leave_blocks(void *arg)
{
	unsigned own_index = (unsigned)(uintptr_t)arg;
	CUstream stream;

	EXPECT_OK(cuCtxSetCurrent(app_ctx));
	EXPECT_OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	for (size_t i = 0; i < LENGTH(sizes); i++) {
		CUdeviceptr freed = 0;

		EXPECT_OK(cuMemAlloc_v2(&left_blocks[own_index][i], sizes[i]));
		EXPECT_OK(cuMemAlloc_v2(&freed, sizes[i]));
		EXPECT_OK(cuMemsetD32Async(freed, own_index, 64, stream));
		EXPECT_OK(cuMemFree_v2(freed));
		EXPECT_OK(cuMemsetD32Async(left_blocks[own_index][i], own_index, 16, stream));
	}
	return NULL;
}

static void ended_threads(void)
{
	unsigned wrong = 0;

	app_start();
	for (unsigned round = 0; round < 10; round++) {
		run(leave_blocks);
		APP_MUST(cuCtxSynchronize());
		for (unsigned i = 0; i < N_THREADS; i++) {
			for (size_t k = 0; k < LENGTH(sizes); k++) {
				uint32_t word = 99;

				EXPECT_OK(cuMemcpyDtoH_v2(&word, left_blocks[i][k], sizeof(word)));
				wrong += word != i;
				EXPECT_OK(cuMemFree_v2(left_blocks[i][k]));
			}
		}
	}
	app_result("wrong words", (int)wrong);
	app_result("bad", (int)n_bad);
}

static pthread_barrier_t barrier;

static void report_calls_in_ended_context(CUdeviceptr kept, CUdeviceptr of_primary)
{
	CUcontext now = NULL;
	CUdeviceptr ptr = 0;
	CUdevice device = 0;
	void *host;

	app_result("alloc", cuMemAlloc_v2(&ptr, MIB));
	app_result("alloc of a size that was cached", cuMemAlloc_v2(&ptr, 300));
	app_result("pinned alloc", cuMemHostAlloc(&host, 4096, 0));
	app_result("free", cuMemFree_v2(kept));
	app_result("free of the primary's", cuMemFree_v2(of_primary));
	app_result("synchronise", cuCtxSynchronize());
	APP_MUST(cuCtxGetCurrent(&now));
	app_result("still current", now == shared);
	app_result("device", cuCtxGetDevice(&device));
}

static void *work_until_context_ends(void *arg)
{
	CUdeviceptr *of_primary = arg, ptr = 0, freed = 0;

	EXPECT_OK(cuCtxSetCurrent(shared));
	EXPECT_OK(cuMemAlloc_v2(&ptr, MIB));
	EXPECT_OK(cuMemAlloc_v2(&freed, 300));
	EXPECT_OK(cuMemFree_v2(freed));
	pthread_barrier_wait(&barrier);
	pthread_barrier_wait(&barrier);
	report_calls_in_ended_context(ptr, *of_primary);
	return NULL;
}

/* A context ends while it is current in another thread. Then every call of that thread that needs a context fails. */
static void ended_elsewhere(void)
{
	CUdeviceptr ptr;
	pthread_t thread;
	CUcontext ctx;

	app_start();
	ptr = app_alloc(MIB);
	APP_MUST(cuCtxCreate_v2(&ctx, 0, 0));
	shared = ctx;
	pthread_barrier_init(&barrier, NULL, 2);
	pthread_create(&thread, NULL, work_until_context_ends, &ptr);
	pthread_barrier_wait(&barrier);
	app_result("destroy", cuCtxDestroy_v2(ctx));
	pthread_barrier_wait(&barrier);
	pthread_join(thread, NULL);
	APP_MUST(cuCtxSetCurrent(app_ctx));
	app_result("free of the primary's in the primary", cuMemFree_v2(ptr));
	use_block(MIB, 1);
	app_result("bad", (int)n_bad);
}

const struct app_scenario app_scenarios[] = {
	{"retained", retained, 0},
	{"reset-under", reset_under, 0},
	{"released-under", released_under, 0},
	{"destroyed-under", destroyed_under, 0},
	{"ended-threads", ended_threads, 0},
	{"ended-elsewhere", ended_elsewhere, 0},
	{0},
};
