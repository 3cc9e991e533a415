/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Arrays whose memory has to go back to the driver once they are unmapped. */

#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "api/gpupool.h"
#include "app_virtual.h"

/* The driver needs memory of its own for the next context. */
void nearly_full(void)
{
	CUcontext context;
	struct array a;

	app_start();
	array_make(&a, 1000 * MIB);
	array_destroy(&a);
	app_result("context", cuCtxCreate_v2(&context, 0, 0));
}

/* Memory that is never kept takes what the device has left, while other memory is unused. */
void beside_compressible(void)
{
	CUmemGenericAllocationHandle handle;
	struct array a[4];

	app_start();
	for (unsigned i = 0; i < LENGTH(a); i++)
		array_make(&a[i], 128 * MIB);
	for (unsigned i = 0; i < LENGTH(a); i++)
		array_destroy(&a[i]);
	array_properties.allocFlags.compressionType = 1;
	for (unsigned i = 0; i < 5; i++)
		APP_MUST(cuMemCreate(&handle, 64 * MIB, &array_properties, 0));
	app_pause("end");
}

void over_limit(void)
{
	CUdeviceptr ptr;
	struct array a;

	app_start();
	array_make(&a, 64 * MIB);
	app_say("limit", "%d", gpupool_set_limit(0, 16 * MIB));
	array_destroy(&a);
	app_result("as before", array_try(&a, 64 * MIB));
	app_result("what the limit allows", array_try(&a, 8 * MIB));
	app_result("and beside it", cuMemAlloc_v2(&ptr, 8 * MIB));
}

/* A thread that allocates. */
struct allocation {
	pthread_t thread;
	_Atomic int id; /* the kernel's */
	_Atomic bool is_done;
	CUresult r;
};

static void *allocate(void *arg)
{
	struct allocation *allocation = arg;
	struct array a;

	APP_MUST(cuCtxSetCurrent(app_ctx));
	allocation->id = (int)syscall(SYS_gettid);
	allocation->r = array_try(&a, 20 * MIB);
	allocation->is_done = true;
	return NULL;
}

/* One thread gives the unused memory back, and another needs it meanwhile. There is enough for both. */
void given_by_other(void)
{
	struct allocation all[2] = {{0}};
	struct array a;

	app_start();
	array_make(&a, 48 * MIB);
	array_destroy(&a);
	app_stop_calls("cuMemUnmap", false);
	pthread_create(&all[0].thread, NULL, allocate, &all[0]);
	app_await_stopped_call();
	pthread_create(&all[1].thread, NULL, allocate, &all[1]);
	while (!all[1].is_done && (!all[1].id || !app_is_asleep(all[1].id)))
		sched_yield();
	app_release_calls();
	for (unsigned i = 0; i < LENGTH(all); i++) {
		pthread_join(all[i].thread, NULL);
		app_result("array", all[i].r);
	}
}

static void *make_and_destroy(void *arg)
{
	unsigned seed = (unsigned)(uintptr_t)arg;
	uintptr_t n_failed = 0;
	struct array a;

	APP_MUST(cuCtxSetCurrent(app_ctx));
	for (unsigned i = 0; i < 200; i++) {
		CUresult r = array_try(&a, (12 + app_random(&seed) % 4) * 2 * MIB);

		n_failed += r != CUDA_SUCCESS;
		if (!r)
			array_destroy(&a);
	}
	return (void *)n_failed;
}

/* Two threads have an array each, which the device has room for, and leave others unused. */
void two_at_once(void)
{
	pthread_t threads[2];
	void *n_failed;

	app_start();
	for (uintptr_t i = 0; i < LENGTH(threads); i++)
		pthread_create(&threads[i], NULL, make_and_destroy, (void *)(i + 1));
	for (unsigned i = 0; i < LENGTH(threads); i++) {
		pthread_join(threads[i], &n_failed);
		app_say("out of memory", "%zu", (size_t)n_failed);
	}
}

/* The program unmaps an array while the process is asleep. */
void unmapped_asleep(void)
{
	CUdeviceptr ptr;
	struct array a;

	app_start();
	ptr = app_alloc(8 * MIB);
	app_fill(NULL, ptr, WORDS, 7);
	array_make(&a, 32 * MIB);
	APP_MUST(cuCtxSynchronize());
	app_say("slept", "%d", gpupool_sleep(2000) > 0);
	APP_MUST(cuMemUnmap(a.ptr, a.bytes));
	APP_MUST(cuMemRelease(a.handle));
	APP_MUST(cuMemAddressFree(a.ptr, a.bytes));
	app_pause("asleep");
	app_say("woke", "%d", gpupool_wake(2000) > 0);
	app_say("wrong words", "%zu", app_count_wrong(NULL, ptr, WORDS, 7));
}
