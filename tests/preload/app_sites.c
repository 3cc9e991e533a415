/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Blocks that named functions hold, wrong frees, and memory that runs out. */

#include <pthread.h>

#include "app_driver.h"

/* Keep a function from being inlined, and the call before NO_TAIL_CALL from becoming a tail call. */
#define NOT_INLINED  __attribute__((noinline, noclone))
#define NO_TAIL_CALL __asm__ volatile("")

enum { KEPT_MAX = 512, N_THREADS = 4 };

static CUdeviceptr kept[KEPT_MAX];
static _Atomic unsigned n_kept;

/* Returns a number that the compiler does not know, so that a loop is not unrolled. */
static int times(int n)
{
	__asm__ volatile("" : "+r"(n));
	return n;
}

static void keep(CUdeviceptr ptr)
{
	kept[n_kept++] = ptr;
}

NOT_INLINED static void keep_large(void)
{
	keep(app_alloc(MIB));
	NO_TAIL_CALL;
}

NOT_INLINED static void keep_small(void)
{
	keep(app_alloc(4 * KIB));
	NO_TAIL_CALL;
}

NOT_INLINED static void keep_few(void)
{
	for (int i = 0; i < times(2); i++)
		keep_small();
	NO_TAIL_CALL;
}

NOT_INLINED static void keep_many(void)
{
	for (int i = 0; i < times(5); i++)
		keep_small();
	NO_TAIL_CALL;
}

NOT_INLINED static void churn(unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		APP_MUST(cuMemFree_v2(app_alloc(4 * KIB)));
	NO_TAIL_CALL;
}

NOT_INLINED static void *keep_pinned(void)
{
	void *host;

	APP_MUST(cuMemHostAlloc(&host, 2 * MIB, 0));
	return host;
}

NOT_INLINED static CUdeviceptr keep_managed(void)
{
	CUdeviceptr ptr;

	APP_MUST(cuMemAllocManaged(&ptr, 8 * MIB, 1));
	return ptr;
}

static void free_all(void)
{
	while (n_kept)
		APP_MUST(cuMemFree_v2(kept[--n_kept]));
}

static void leaks(void)
{
	CUdeviceptr managed;
	void *host;

	app_start();
	for (int i = 0; i < times(3); i++)
		keep_large();
	churn(100);
	keep_few();
	keep_many();
	host = keep_pinned();
	managed = keep_managed();
	app_pause("held");
	free_all();
	APP_MUST(cuMemFreeHost(host));
	APP_MUST(cuMemFree_v2(managed));
	app_pause("freed");
	printf("done\n");
}

/* Allocates blocks before stacks are switched on, while they are on, and after they are off. */
static void turns(void)
{
	app_start();
	keep_large();
	app_pause("before");
	keep_large();
	keep_large();
	app_pause("on");
	keep_large();
	APP_MUST(cuMemFree_v2(kept[2]));
	app_pause("off");
	printf("done\n");
}

static void *work(void *unused)
{
	APP_MUST(cuCtxSetCurrent(app_ctx));
	churn(200);
	keep_many();
	churn(200);
	return NULL;
}

static void threads(void)
{
	pthread_t all[N_THREADS];

	app_start();
	churn(1); /* a thread that allocates during the first set-up may get no stack */
	for (int i = 0; i < N_THREADS; i++)
		APP_MUST(pthread_create(&all[i], NULL, work, NULL));
	for (int i = 0; i < N_THREADS; i++)
		APP_MUST(pthread_join(all[i], NULL));
	app_pause("held");
	free_all();
	printf("done\n");
}

NOT_INLINED static CUdeviceptr alloc_block(size_t bytes)
{
	CUdeviceptr ptr = app_alloc(bytes);

	NO_TAIL_CALL;
	return ptr;
}

NOT_INLINED static void free_block(CUdeviceptr ptr)
{
	app_result("free", cuMemFree_v2(ptr));
	NO_TAIL_CALL;
}

NOT_INLINED static void free_block_again(CUdeviceptr ptr)
{
	app_result("free again", cuMemFree_v2(ptr));
	NO_TAIL_CALL;
}

static void wrong(void)
{
	CUdeviceptr small, large;

	app_start();
	small = alloc_block(1000);
	free_block(small);
	free_block_again(small);
	large = alloc_block(3 * MIB);
	free_block_again(large + MIB);
	free_block(large);
	app_pause("wrong");
}

/* Makes more wrong frees than can be reported one by one. */
static void often(void)
{
	CUdeviceptr ptr;

	app_start();
	ptr = alloc_block(1000);
	free_block(ptr);
	for (int i = 0; i < times(100); i++)
		free_block_again(ptr);
}

/* In the end most of a device of 1 GiB is free, but not in one piece. */
static void fragmented(void)
{
	CUdeviceptr ptr;
	unsigned n = 0;

	app_start();
	while (n < KEPT_MAX && !cuMemAlloc_v2(&kept[n], 4 * MIB))
		n++;
	for (unsigned i = 0; i < n; i += 2)
		APP_MUST(cuMemFree_v2(kept[i]));
	for (int i = 0; i < times(2); i++)
		app_result("large", cuMemAlloc_v2(&ptr, 400 * MIB));
	app_pause("oom");
}

static void limited(void)
{
	CUdeviceptr ptr;
	void *host;

	app_start();
	for (int i = 0; i < times(100); i++)
		keep_large();
	app_result("large", cuMemAlloc_v2(&ptr, 200 * MIB));
	app_pause("device");
	app_result("more than the device has", cuMemAlloc_v2(&ptr, 1024 * MIB));
	app_pause("beyond");
	app_result("managed", cuMemAllocManaged(&ptr, 200 * MIB, 1));
	app_pause("managed");
	app_result("pinned", cuMemHostAlloc(&host, 64 * MIB, 0));
	app_pause("pinned");
	free_all();
}

/* The mangled name of hold<std::pair<int, long>, ... 81 of them>(). The demangler refuses longer names. */
#define NINE(text) text text text text text text text text text
NOT_INLINED static void hold_many_types(size_t bytes) __asm__("_Z4holdIJ" NINE(NINE("St4pairIilE")) "EEvv");

static void hold_many_types(size_t bytes)
{
	keep(app_alloc(bytes));
	NO_TAIL_CALL;
}

NOT_INLINED static void hold_here(void)
{
	hold_many_types(2 * MIB);
	NO_TAIL_CALL;
}

NOT_INLINED static void hold_there(void)
{
	hold_many_types(3 * MIB);
	NO_TAIL_CALL;
}

static void templates(void)
{
	app_start();
	hold_here();
	hold_there();
	app_pause("held");
	free_all();
}

/* Ends while it still holds blocks. */
static void ends(void)
{
	app_start();
	keep_large();
	keep_many();
	churn(10);
	printf("done\n");
}

const struct app_scenario app_scenarios[] = {
	{"leaks", leaks},
	{"turns", turns},
	{"threads", threads},
	{"wrong", wrong},
	{"often", often},
	{"fragmented", fragmented},
	{"limited", limited},
	{"templates", templates},
	{"ends", ends},
	{0},
};
