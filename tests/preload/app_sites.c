/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Blocks that named functions hold, wrong frees, and memory that runs out. */

#include <pthread.h>

#include "app_driver.h"

/* Keep a function from being inlined, and the call before STAYS from becoming a tail call. */
#define APART __attribute__((noinline, noclone))
#define STAYS __asm__ volatile("")

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

APART static void keep_large(void)
{
	keep(app_alloc(MIB));
	STAYS;
}

APART static void keep_small(void)
{
	keep(app_alloc(4 * KIB));
	STAYS;
}

APART static void keep_few(void)
{
	for (int i = 0; i < times(2); i++)
		keep_small();
	STAYS;
}

APART static void keep_many(void)
{
	for (int i = 0; i < times(5); i++)
		keep_small();
	STAYS;
}

APART static void churn(unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		APP_MUST(cuMemFree_v2(app_alloc(4 * KIB)));
	STAYS;
}

APART static void *keep_pinned(void)
{
	void *host;

	APP_MUST(cuMemHostAlloc(&host, 2 * MIB, 0));
	return host;
}

APART static CUdeviceptr keep_managed(void)
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

APART static CUdeviceptr make_it(size_t bytes)
{
	CUdeviceptr ptr = app_alloc(bytes);

	STAYS;
	return ptr;
}

APART static void free_it(CUdeviceptr ptr)
{
	app_result("free", cuMemFree_v2(ptr));
	STAYS;
}

APART static void free_it_again(CUdeviceptr ptr)
{
	app_result("again", cuMemFree_v2(ptr));
	STAYS;
}

static void wrong(void)
{
	CUdeviceptr small, large;

	app_start();
	small = make_it(1000);
	free_it(small);
	free_it_again(small);
	large = make_it(3 * MIB);
	free_it_again(large + MIB);
	free_it(large);
	app_pause("wrong");
}

/* Makes more wrong frees than can be reported one by one. */
static void often(void)
{
	CUdeviceptr ptr;

	app_start();
	ptr = make_it(1000);
	free_it(ptr);
	for (int i = 0; i < times(100); i++)
		free_it_again(ptr);
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
APART static void hold_many_types(size_t bytes) __asm__("_Z4holdIJ" NINE(NINE("St4pairIilE")) "EEvv");

static void hold_many_types(size_t bytes)
{
	keep(app_alloc(bytes));
	STAYS;
}

APART static void hold_here(void)
{
	hold_many_types(2 * MIB);
	STAYS;
}

APART static void hold_there(void)
{
	hold_many_types(3 * MIB);
	STAYS;
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
