/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* The end of order, where it is hard to see: in functions that others stand in front of, and beside busy threads. */

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>

#include "app_driver.h"
#include "lib_next.h"

enum { ROUNDS = 40, THREADS = 2, SLOW_NS = 50000 };

static const size_t bytes = 4 * MIB;	/* of a block */
static const size_t touched = 64 * KIB; /* of it, by each kernel */

/*
 * What a slow kernel still writes, on the default stream, is used again, and written to on a stream that was there
 * before and that nobody had used.
 */
static void reuse_busy(void (*write)(CUstream stream, CUdeviceptr ptr))
{
	CUdeviceptr old, new;
	CUstream stream;

	app_start();
	stream = app_stream();
	old = app_alloc(bytes);
	app_spin_fill(NULL, old, touched, 0xdead, SLOW_NS);
	APP_MUST(cuMemFree_v2(old));
	new = app_alloc(bytes);
	write(stream, new);
	APP_MUST(cuCtxSynchronize());
	printf("wrong words: %zu\n", app_count_wrong(stream, new, touched, 1));
	app_tell_driver();
}

static void set_directly(CUstream stream, CUdeviceptr ptr)
{
	APP_MUST(cuMemsetD32Async(ptr, 1, touched / 4, stream));
}

static void direct(void)
{
	reuse_busy(set_directly);
}

static void set_looked_up(CUstream stream, CUdeviceptr ptr)
{
	CUresult (*set)(CUdeviceptr, unsigned, size_t, CUstream) = dlsym(RTLD_DEFAULT, "cuMemsetD32Async");

	APP_MUST(set(ptr, 1, touched / 4, stream));
}

static void looked_up(void)
{
	reuse_busy(set_looked_up);
}

static void set_past(CUstream stream, CUdeviceptr ptr)
{
	APP_MUST(next_set(ptr, 1, touched / 4, stream));
}

static void past(void)
{
	reuse_busy(set_past);
}

static void fill_ex(CUstream stream, CUdeviceptr ptr)
{
	app_fill_ex(stream, ptr, touched, 1);
}

static void with_attributes(void)
{
	reuse_busy(fill_ex);
}

/* Two threads, each once the other is done; nobody makes a stream. */
static void *loop(void *wrong)
{
	APP_MUST(cuCtxSetCurrent(app_ctx));
	for (unsigned i = 0; i < ROUNDS; i++) {
		CUdeviceptr ptr = app_alloc(bytes);

		app_spin_fill(NULL, ptr, touched, i, SLOW_NS);
		*(size_t *)wrong += i % 8 ? 0 : app_count_wrong(NULL, ptr, touched, i);
		APP_MUST(cuMemFree_v2(ptr));
	}
	return NULL;
}

static void two_threads(void)
{
	pthread_t thread;
	size_t wrong = 0;

	app_start();
	loop(&wrong);
	APP_MUST(pthread_create(&thread, NULL, loop, &wrong));
	APP_MUST(pthread_join(thread, NULL));
	printf("wrong words: %zu\n", wrong);
	app_tell_driver();
}

/* Threads that are in the middle of it when others end the order, two at the same time. */
static _Atomic unsigned n_begun;
static pthread_barrier_t at_once;

static void *work_in_order(void *wrong)
{
	APP_MUST(cuCtxSetCurrent(app_ctx));
	for (unsigned i = 0; i < 4 * ROUNDS; i++) {
		CUdeviceptr ptr = app_alloc(bytes);

		app_spin_fill(NULL, ptr, touched, i, SLOW_NS);
		APP_MUST(cuMemFree_v2(ptr));
		atomic_fetch_add(&n_begun, 1);
	}
	return wrong;
}

static void *work_on_stream(void *wrong)
{
	CUstream stream;

	APP_MUST(cuCtxSetCurrent(app_ctx));
	stream = app_stream();
	while (atomic_load(&n_begun) < ROUNDS)
		sched_yield();
	pthread_barrier_wait(&at_once);
	for (unsigned i = 0; i < ROUNDS; i++) {
		CUdeviceptr ptr = app_alloc(bytes);

		app_fill(stream, ptr, touched, i);
		*(size_t *)wrong += app_count_wrong(stream, ptr, touched, i);
		APP_MUST(cuMemFree_v2(ptr));
	}
	return NULL;
}

static void beside_threads(void)
{
	pthread_t threads[2 * THREADS];
	size_t wrong[2 * THREADS] = {0}, sum = 0;

	app_start();
	pthread_barrier_init(&at_once, NULL, THREADS);
	for (unsigned i = 0; i < 2 * THREADS; i++)
		APP_MUST(pthread_create(
			&threads[i], NULL, i < THREADS ? work_in_order : work_on_stream, &wrong[i]));
	for (unsigned i = 0; i < 2 * THREADS; i++) {
		APP_MUST(pthread_join(threads[i], NULL));
		sum += wrong[i];
	}
	printf("wrong words: %zu\n", sum);
	app_tell_driver();
}

const struct app_scenario app_scenarios[] = {
	{"direct", direct},
	{"looked_up", looked_up},
	{"past", past},
	{"with_attributes", with_attributes},
	{"two_threads", two_threads},
	{"beside_threads", beside_threads},
	{0},
};
