/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * The end of serial mode where it is hard to notice: in functions that other libraries interpose, and beside busy
 * threads.
 */

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>

#include "app_driver.h"
#include "lib_next.h"
#include "tests/apps/kernels.h"

enum { ROUNDS = 40, THREADS = 2, SLOW_NS = 50000 };

static const size_t bytes = 4 * MIB;    /* size of a block */
static const size_t touched = 64 * KIB; /* bytes of it that each kernel writes */

/*
 * Reuses a block that a slow kernel on the default stream still writes, and writes to it on a stream that existed
 * before but had not been used.
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
	app_report_driver();
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

/* Returns a launch function past all hooks, like one of a later driver that no table of the library contains. */
static CUresult (*find_new_launch(void))(const CUlaunchConfig *, CUfunction, void **, void **)
{
	void *(*next)(void *, const char *) = (__typeof__(next))dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");

	if (!next)
		next = (__typeof__(next))dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.17");
	return (CUresult(*)(const CUlaunchConfig *, CUfunction, void **, void **))next(
		dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD), "cuLaunchKernelEx");
}

/* The kernel may start before the previous one has ended, although the program has one thread and no stream. */
static void fill_early_unseen(CUstream unused, CUdeviceptr ptr)
{
	CUlaunchAttribute attribute = {.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION};
	CUlaunchConfig config = {1, 1, 1, 1, 1, 1, .hStream = NULL, .attrs = &attribute, .numAttrs = 1};
	uint64_t words = touched / 4;
	uint32_t value = 1;
	CUmodule module;
	CUfunction fill;

	attribute.value.programmaticStreamSerializationAllowed = 1;
	APP_MUST(cuModuleLoadData(&module, kernels_ptx));
	APP_MUST(cuModuleGetFunction(&fill, module, "fill"));
	APP_MUST(find_new_launch()(&config, fill, (void *[]){&ptr, &words, &value}, NULL));
}

static void early_unseen(void)
{
	CUdeviceptr old, new;

	app_start();
	old = app_alloc(bytes);
	app_spin_fill(NULL, old, touched, 0xdead, 1000 * SLOW_NS);
	APP_MUST(cuMemFree_v2(old));
	new = app_alloc(bytes);
	fill_early_unseen(NULL, new);
	APP_MUST(cuCtxSynchronize());
	printf("wrong words: %zu\n", app_count_wrong(NULL, new, touched, 1));
	app_report_driver();
}

/* The body of two threads, of which the second starts after the first has ended. Neither creates a stream. */
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
	app_report_driver();
}

/* Threads that work in serial mode while two other threads end it at the same time. */
static _Atomic unsigned n_begun;
static pthread_barrier_t at_once;

static void *work_serially(void *wrong)
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
		APP_MUST(pthread_create(&threads[i], NULL, i < THREADS ? work_serially : work_on_stream, &wrong[i]));
	for (unsigned i = 0; i < 2 * THREADS; i++) {
		APP_MUST(pthread_join(threads[i], NULL));
		sum += wrong[i];
	}
	printf("wrong words: %zu\n", sum);
	app_report_driver();
}

const struct app_scenario app_scenarios[] = {
	{"direct", direct},
	{"looked_up", looked_up},
	{"past", past},
	{"with_attributes", with_attributes},
	{"early_unseen", early_unseen},
	{"two_threads", two_threads},
	{"beside_threads", beside_threads},
	{0},
};
