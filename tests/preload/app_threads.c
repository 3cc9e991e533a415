/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Many threads, each with a stream, allocate blocks, use them, free them, and free blocks of other threads. */

#include <pthread.h>
#include <stdlib.h>

#include "app_driver.h"

enum { N_THREADS = 16, STEPS = 400, SLOTS = 64, TOUCHED = 256 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static CUdeviceptr slots[SLOTS]; /* blocks that pass from one thread to another; under lock */
static uint64_t n_allocs;

static CUdeviceptr exchange(unsigned i, CUdeviceptr given)
{
	CUdeviceptr other;

	pthread_mutex_lock(&lock);
	other = slots[i];
	slots[i] = given;
	n_allocs++;
	pthread_mutex_unlock(&lock);
	return other;
}

static void *work(void *arg)
{
	unsigned seed = (unsigned)(uintptr_t)arg;
	size_t wrong = 0;
	CUstream stream;

	APP_MUST(cuCtxSetCurrent(app_ctx));
	stream = app_stream();
	for (unsigned i = 0; i < STEPS; i++) {
		size_t bytes = (size_t)TOUCHED << app_random(&seed) % 14;
		CUdeviceptr ptr = app_alloc(bytes), other;

		app_fill(stream, ptr, TOUCHED, i);
		if (i % 8 == 0)
			wrong += app_count_wrong(stream, ptr, TOUCHED, i);
		if (i % 32 == 0) {
			void *host;

			APP_MUST(cuMemHostAlloc(&host, bytes, 0));
			APP_MUST(cuMemFreeHost(host));
		}
		other = exchange(app_random(&seed) % SLOTS, ptr);
		if (other)
			APP_MUST(cuMemFree_v2(other));
	}
	APP_MUST(cuStreamDestroy_v2(stream));
	return (void *)wrong;
}

static size_t run_all(void)
{
	pthread_t threads[N_THREADS];
	size_t wrong = 0;
	void *result;

	for (uintptr_t i = 0; i < N_THREADS; i++)
		pthread_create(&threads[i], NULL, work, (void *)(i + 1));
	for (unsigned i = 0; i < N_THREADS; i++) {
		pthread_join(threads[i], &result);
		wrong += (size_t)(uintptr_t)result;
	}
	return wrong;
}

static void many(void)
{
	app_start();
	printf("wrong words: %zu\n", run_all());
	for (unsigned i = 0; i < SLOTS; i++)
		if (slots[i])
			APP_MUST(cuMemFree_v2(slots[i]));
	app_fact("allocs", n_allocs);
	app_pause("threads");
	app_report_driver();
}

enum { N_HANDED = 1024 };

static CUdeviceptr handed[N_HANDED];

static void *free_all(void *unused)
{
	APP_MUST(cuCtxSetCurrent(app_ctx));
	for (unsigned i = 0; i < N_HANDED; i++)
		APP_MUST(cuMemFree_v2(handed[i]));
	return NULL;
}

/* One thread allocates and submits work. A second thread, which never allocates, frees. */
static void hand_over(void)
{
	pthread_t thread;
	CUstream stream;

	app_start();
	stream = app_stream();
	for (unsigned round = 0; round < 4; round++) {
		for (unsigned i = 0; i < N_HANDED; i++) {
			handed[i] = app_alloc(KIB);
			app_fill(stream, handed[i], TOUCHED, i);
		}
		pthread_create(&thread, NULL, free_all, NULL);
		pthread_join(thread, NULL);
	}
	printf("handed over\n");
	app_pause("threads");
	app_report_driver();
}

static void *work_on(void *arg)
{
	CUdeviceptr ptr;

	cuCtxSetCurrent(app_ctx);
	for (;;)
		if (!cuMemAlloc_v2(&ptr, MIB))
			cuMemFree_v2(ptr);
	return NULL;
}

/* The process ends while threads are inside calls. */
static void cut_short(void)
{
	pthread_t thread;

	app_start();
	for (unsigned i = 0; i < 4; i++)
		pthread_create(&thread, NULL, work_on, NULL);
	for (unsigned i = 0; i < 100; i++)
		APP_MUST(cuMemFree_v2(app_alloc(MIB)));
	printf("bye\n");
}

/* The process ends while a thread starts the library in its first allocation, and goes on only then. */
static void starting(void)
{
	pthread_t thread;

	app_start();
	app_stop_calls("cuDeviceGetCount", false);
	pthread_create(&thread, NULL, work_on, NULL);
	app_await_stopped_call();
	for (unsigned i = 0; i < 10; i++)
		APP_MUST(cuMemFree_v2(app_alloc(MIB)));
	(void)atexit(app_release_calls);
	printf("bye\n");
}

const struct app_scenario app_scenarios[] = {
	{"many", many},
	{"hand-over", hand_over},
	{"cut-short", cut_short},
	{"starting", starting},
	{0},
};
