/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Contexts that begin and end, with memory in them. */

#include <pthread.h>

#include "app_driver.h"
#include "tests/sim/abi.h"

enum { ROUNDS = 80, BLOCKS = 8 };

static const size_t bytes = MIB;

/* Checks that the blocks are distinct and keep their contents. Leaves `keep` of them allocated. */
static void use_blocks(unsigned keep)
{
	CUdeviceptr ptr[BLOCKS];
	uint32_t word;

	for (unsigned i = 0; i < BLOCKS; i++) {
		ptr[i] = app_alloc(bytes);
		APP_MUST(cuMemsetD32_v2(ptr[i], i, 16));
	}
	for (unsigned i = 0; i < BLOCKS; i++) {
		APP_MUST(cuMemcpyDtoH_v2(&word, ptr[i], sizeof(word)));
		if (word != i)
			app_result("wrong word", (int)word);
	}
	for (unsigned i = keep; i < BLOCKS; i++)
		APP_MUST(cuMemFree_v2(ptr[i]));
}

static void report(void)
{
	app_fact("status", 0);
	app_pause("context");
	app_report_driver();
}

/* Live and cached blocks end with the context, here by a reset, below by a release or a destruction. */
static void reset(void)
{
	CUdeviceptr old;

	app_start();
	for (unsigned i = 0; i < ROUNDS; i++) {
		old = app_alloc(bytes);
		use_blocks(3);
		APP_MUST(cuDevicePrimaryCtxReset_v2(0));
		app_result("allocation after the reset", cuMemAlloc_v2(&old, bytes));
		APP_MUST(cuDevicePrimaryCtxRetain(&app_ctx, 0));
		APP_MUST(cuCtxSetCurrent(app_ctx));
	}
	use_blocks(0);
	report();
}

static void release(void)
{
	CUdeviceptr ptr;

	APP_MUST(cuInit(0));
	for (unsigned i = 0; i < ROUNDS; i++) {
		APP_MUST(cuDevicePrimaryCtxRetain(&app_ctx, 0));
		APP_MUST(cuDevicePrimaryCtxRetain(&app_ctx, 0));
		APP_MUST(cuCtxSetCurrent(app_ctx));
		use_blocks(3);
		APP_MUST(cuDevicePrimaryCtxRelease_v2(0));
		use_blocks(0);
		ptr = app_alloc(bytes);
		APP_MUST(cuDevicePrimaryCtxRelease_v2(0));
		app_result("allocation after the last release", cuMemAlloc_v2(&ptr, bytes));
	}
	app_result("one release too many", cuDevicePrimaryCtxRelease_v2(0));
	app_report_driver();
	printf("done\n");
}

static void create(void)
{
	CUdeviceptr ptr;
	void *host;
	CUcontext ctx;

	app_start();
	for (unsigned i = 0; i < ROUNDS; i++) {
		APP_MUST(cuCtxCreate_v2(&ctx, 0, 0));
		use_blocks(3);
		APP_MUST(cuMemHostAlloc(&host, bytes, 0));
		ptr = app_alloc(bytes);
		APP_MUST(cuMemFreeHost(host));
		APP_MUST(cuCtxDestroy_v2(ctx));
		if (i % 16 == 0)
			app_result("free of memory that ended with its context", cuMemFree_v2(ptr));
	}
	APP_MUST(cuCtxSetCurrent(app_ctx));
	use_blocks(0);
	app_result("destroy of NULL", cuCtxDestroy_v2(NULL));
	report();
}

/*
 * Memory of one context is never served in another. A freed block returns to its context, even if another one is
 * current.
 */
static void two(void)
{
	CUcontext second, owner;
	CUdeviceptr first_ptr, second_ptr;

	app_start();
	first_ptr = app_alloc(bytes);
	app_pause("one context");
	APP_MUST(cuCtxCreate_v2(&second, 0, 0));
	for (unsigned i = 0; i < 16; i++) {
		second_ptr = app_alloc(bytes);
		APP_MUST(cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, second_ptr));
		printf("owner %d\n", owner == second);
		APP_MUST(cuMemFree_v2(first_ptr));
		APP_MUST(cuCtxSetCurrent(app_ctx));
		first_ptr = app_alloc(bytes);
		APP_MUST(cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, first_ptr));
		printf("owner %d\n", owner == app_ctx);
		APP_MUST(cuMemFree_v2(second_ptr));
		APP_MUST(cuCtxSetCurrent(second));
	}
	app_pause("two contexts");
	app_result("free without a context", (cuCtxSetCurrent(NULL), cuMemFree_v2(first_ptr)));
}

/* Frees memory of one device while the other is current, and copies between the devices. */
static void two_devices(void)
{
	CUcontext second;
	CUdeviceptr ptr[2];
	uint32_t word = 0;

	app_start();
	APP_MUST(cuDevicePrimaryCtxRetain(&second, 1));
	for (unsigned i = 0; i < 32; i++) {
		APP_MUST(cuCtxSetCurrent(app_ctx));
		ptr[0] = app_alloc(bytes);
		APP_MUST(cuMemsetD32_v2(ptr[0], i, 16));
		APP_MUST(cuCtxSynchronize());
		APP_MUST(cuCtxSetCurrent(second));
		ptr[1] = app_alloc(bytes);
		APP_MUST(cuMemcpyPeerAsync(ptr[1], second, ptr[0], app_ctx, 64, NULL));
		APP_MUST(cuCtxSynchronize());
		APP_MUST(cuMemFree_v2(ptr[0]));
		APP_MUST(cuMemcpyDtoH_v2(&word, ptr[1], sizeof(word)));
		if (word != i)
			app_result("wrong word", (int)word);
		APP_MUST(cuCtxSetCurrent(app_ctx));
		APP_MUST(cuMemFree_v2(ptr[1]));
	}
	report();
	printf("done\n");
}

enum { DEVICES_MAX = 4, FILL_MAX = 64 };

/*
 * Reports how many blocks of 16 MiB each device gives, twice. In between all are freed with the first device current.
 */
static void fill_devices(void)
{
	static CUdeviceptr ptr[DEVICES_MAX][FILL_MAX];
	unsigned n[DEVICES_MAX] = {0};
	char name[32];
	int count = 0;

	app_start();
	APP_MUST(cuDeviceGetCount(&count));
	for (unsigned round = 0; round < 2; round++) {
		for (int d = 0; d < count && d < DEVICES_MAX; d++) {
			CUcontext ctx;

			APP_MUST(cuDevicePrimaryCtxRetain(&ctx, d));
			APP_MUST(cuCtxSetCurrent(ctx));
			for (n[d] = 0; n[d] < FILL_MAX && !cuMemAlloc_v2(&ptr[d][n[d]], 16 * MIB);)
				n[d]++;
			snprintf(name, sizeof(name), "device %d round %u", d, round);
			app_fact(name, n[d]);
		}
		APP_MUST(cuCtxSetCurrent(app_ctx));
		for (int d = 0; d < count && d < DEVICES_MAX; d++)
			for (unsigned i = 0; i < n[d]; i++)
				APP_MUST(cuMemFree_v2(ptr[d][i]));
	}
	printf("done\n");
}

/* Allocates in a green context and in the primary context in turn. */
static void green(void)
{
	CUdevResource all, part, rest;
	CUdevResourceDesc desc;
	CUgreenCtx green_ctx;
	CUcontext ctx;
	unsigned n = 1;

	app_start();
	APP_MUST(cuDeviceGetDevResource(0, &all, CU_DEV_RESOURCE_TYPE_SM));
	APP_MUST(cuDevSmResourceSplitByCount(&part, &n, &all, &rest, 0, 16));
	APP_MUST(cuDevResourceGenerateDesc(&desc, &part, 1));
	APP_MUST(cuGreenCtxCreate(&green_ctx, desc, 0, CU_GREEN_CTX_DEFAULT_STREAM));
	APP_MUST(cuCtxFromGreenCtx(&ctx, green_ctx));
	for (unsigned i = 0; i < ROUNDS; i++) {
		APP_MUST(cuCtxSetCurrent(i % 2 ? ctx : app_ctx));
		use_blocks(0);
	}
	report();
	printf("done\n");
}

enum { N_THREADS = 4 };

static _Atomic unsigned unexpected;

/*
 * Held shared from an allocation to its free, and exclusively while the context is retained again. So a pointer that
 * ended with its context does not belong to another thread when it is freed.
 */
static pthread_rwlock_t retain_lock = PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP;

/* Allocates and frees while the context ends several times. Every result must be one that the driver could return. */
static void *allocate_through_resets(void *unused)
{
	for (unsigned i = 0; i < 300; i++) {
		CUdeviceptr ptr;
		CUresult r;

		pthread_rwlock_rdlock(&retain_lock);
		cuCtxSetCurrent(app_ctx);
		r = cuMemAlloc_v2(&ptr, bytes);
		if (!r)
			r = cuMemFree_v2(ptr);
		pthread_rwlock_unlock(&retain_lock);
		if (r == CUDA_SUCCESS || r == CUDA_ERROR_INVALID_CONTEXT || r == CUDA_ERROR_INVALID_VALUE ||
			r == CUDA_ERROR_CONTEXT_IS_DESTROYED)
			continue;
		unexpected++;
		app_fact("unexpected", (uint64_t)r);
	}
	return NULL;
}

static void end_under_threads(void)
{
	pthread_t threads[N_THREADS];
	CUcontext same;

	APP_MUST(cuInit(0));
	APP_MUST(cuDevicePrimaryCtxRetain(&app_ctx, 0));
	for (unsigned i = 0; i < N_THREADS; i++)
		pthread_create(&threads[i], NULL, allocate_through_resets, NULL);
	for (unsigned i = 0; i < 50; i++) {
		APP_MUST(cuDevicePrimaryCtxReset_v2(0));
		pthread_rwlock_wrlock(&retain_lock);
		APP_MUST(cuDevicePrimaryCtxRetain(&same, 0));
		pthread_rwlock_unlock(&retain_lock);
	}
	for (unsigned i = 0; i < N_THREADS; i++)
		pthread_join(threads[i], NULL);
	printf("unexpected %u\n", unexpected);
	app_start();
	use_blocks(0);
}

/* A context that a sticky error has ended. The same calls return the same errors as without the library. */
static void fault(void)
{
	CUdeviceptr ptr, other = 0x5a5a;

	app_start();
	/* Larger than what a thread cache keeps without a call of the driver. */
	ptr = app_alloc(64 * MIB);
	app_fill(NULL, 64, 4096, 1);
	app_result("synchronise", cuCtxSynchronize());
	app_result("cuMemAlloc", cuMemAlloc_v2(&other, 300 * MIB));
	printf("left alone %d\n", other == 0x5a5a);
	app_result("cuMemFree", cuMemFree_v2(ptr));
	app_result("reset", cuDevicePrimaryCtxReset_v2(0));
	app_start();
	use_blocks(0);
}

const struct app_scenario app_scenarios[] = {
	{"reset", reset},
	{"release", release},
	{"create", create},
	{"two", two},
	{"two-devices", two_devices},
	{"fill-devices", fill_devices},
	{"green", green},
	{"end-under-threads", end_under_threads},
	{"fault", fault},
	{0},
};
