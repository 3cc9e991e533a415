/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* All ways in which a program that is not linked to the driver finds it. The work is the same each time. */

#include <dlfcn.h>

#include "app.h"

/* row(member, symbol, symbol for the per-thread default stream, public name, version) */
#define FUNCTIONS(row)                                                                                                \
	row(cuInit, "cuInit", "cuInit", "cuInit", 2000) row(cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain",     \
		"cuDevicePrimaryCtxRetain", "cuDevicePrimaryCtxRetain", 7000) row(cuCtxSetCurrent, "cuCtxSetCurrent", \
		"cuCtxSetCurrent", "cuCtxSetCurrent", 4000) row(cuMemAlloc_v2, "cuMemAlloc_v2", "cuMemAlloc_v2",      \
		"cuMemAlloc", 3020) row(cuMemFree_v2, "cuMemFree_v2", "cuMemFree_v2", "cuMemFree", 3020)              \
		row(cuMemHostAlloc, "cuMemHostAlloc", "cuMemHostAlloc", "cuMemHostAlloc", 2020) row(                  \
			cuMemFreeHost, "cuMemFreeHost", "cuMemFreeHost", "cuMemFreeHost", 2000) row(cuMemAllocAsync,  \
			"cuMemAllocAsync", "cuMemAllocAsync_ptsz", "cuMemAllocAsync",                                 \
			11020) row(cuMemFreeAsync, "cuMemFreeAsync", "cuMemFreeAsync_ptsz", "cuMemFreeAsync", 11020)  \
			row(cuMemsetD32Async, "cuMemsetD32Async", "cuMemsetD32Async_ptsz", "cuMemsetD32Async", 3020)  \
				row(cuMemcpyDtoHAsync_v2, "cuMemcpyDtoHAsync_v2", "cuMemcpyDtoHAsync_v2_ptsz",        \
					"cuMemcpyDtoHAsync", 3020) row(cuStreamSynchronize, "cuStreamSynchronize",    \
					"cuStreamSynchronize_ptsz", "cuStreamSynchronize", 2000)

static struct {
#define ROW(member, symbol, per_thread_symbol, name, version) __typeof__(&member) member;
	FUNCTIONS(ROW)
#undef ROW
} cu;

static const struct row {
	void **target;
	const char *symbol, *per_thread_symbol, *name;
	int version;
} rows[] = {
#define ROW(member, symbol, per_thread_symbol, name, version) \
	{(void **)&cu.member, symbol, per_thread_symbol, name, version},
	FUNCTIONS(ROW)
#undef ROW
};

typedef __typeof__(&cuGetProcAddress) lookup4_fn;
typedef __typeof__(&cuGetProcAddress_v2) lookup5_fn;

static void *driver;

static void *symbol(const char *name)
{
	void *found;

	if (!driver)
		driver = dlopen("libcuda.so.1", RTLD_NOW);
	found = driver ? dlsym(driver, name) : NULL;
	if (!found)
		printf("no %s\n", name);
	return found;
}

enum { ROUNDS = 200 };

static const size_t bytes = 64 * KIB;

static void work(void)
{
	CUcontext ctx;
	size_t wrong = 0;

	APP_MUST(cu.cuInit(0));
	APP_MUST(cu.cuDevicePrimaryCtxRetain(&ctx, 0));
	APP_MUST(cu.cuCtxSetCurrent(ctx));
	for (unsigned i = 0; i < ROUNDS; i++) {
		uint32_t *words;
		CUdeviceptr ptr;

		APP_MUST(cu.cuMemAlloc_v2(&ptr, bytes));
		APP_MUST(cu.cuMemHostAlloc((void **)&words, bytes, 0));
		APP_MUST(cu.cuMemsetD32Async(ptr, i, bytes / 4, NULL));
		APP_MUST(cu.cuMemcpyDtoHAsync_v2(words, ptr, bytes, NULL));
		APP_MUST(cu.cuStreamSynchronize(NULL));
		for (size_t k = 0; k < bytes / 4; k++)
			wrong += words[k] != i;
		APP_MUST(cu.cuMemFreeHost(words));
		APP_MUST(i % 2 ? cu.cuMemFree_v2(ptr) : cu.cuMemFreeAsync(ptr, NULL));
		APP_MUST(cu.cuMemAllocAsync(&ptr, bytes, NULL));
		APP_MUST(cu.cuMemFreeAsync(ptr, NULL));
	}
	printf("wrong words: %zu\n", wrong);
	app_report_driver();
}

static void by_dlsym(void)
{
	for (size_t i = 0; i < LENGTH(rows); i++)
		*rows[i].target = symbol(rows[i].symbol);
	work();
}

static void by_dlsym_per_thread(void)
{
	for (size_t i = 0; i < LENGTH(rows); i++)
		*rows[i].target = symbol(rows[i].per_thread_symbol);
	work();
}

static void by_default(void)
{
	driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
	for (size_t i = 0; i < LENGTH(rows); i++)
		*rows[i].target = dlsym(RTLD_DEFAULT, rows[i].symbol);
	work();
}

static void by_lookup5(lookup5_fn lookup, uint64_t flags)
{
	for (size_t i = 0; i < LENGTH(rows); i++) {
		int status = -1;

		APP_MUST(lookup(rows[i].name, rows[i].target, rows[i].version, flags, &status));
		if (status)
			app_result(rows[i].name, status);
	}
	work();
}

/* Looks the lookup function up through itself, twice. It must remain the interposed one. */
static lookup5_fn itself5(lookup5_fn lookup)
{
	void *found = (void *)lookup;

	for (unsigned i = 0; i < 2; i++)
		APP_MUST(((lookup5_fn)found)("cuGetProcAddress", &found, 12000, 0, NULL));
	return (lookup5_fn)found;
}

static lookup4_fn itself4(lookup4_fn lookup)
{
	void *found = (void *)lookup;

	for (unsigned i = 0; i < 2; i++)
		APP_MUST(((lookup4_fn)found)("cuGetProcAddress", &found, 11030, 0));
	return (lookup4_fn)found;
}

static void lookup5(void)
{
	by_lookup5(itself5((lookup5_fn)symbol("cuGetProcAddress_v2")), 0);
}

static void lookup5_per_thread(void)
{
	by_lookup5(itself5((lookup5_fn)symbol("cuGetProcAddress_v2")), 2);
}

static void lookup4_per_flags(uint64_t flags)
{
	lookup4_fn lookup = itself4((lookup4_fn)symbol("cuGetProcAddress"));

	for (size_t i = 0; i < LENGTH(rows); i++)
		APP_MUST(lookup(rows[i].name, rows[i].target, rows[i].version, flags));
	work();
}

static void lookup4(void)
{
	lookup4_per_flags(0);
}

static void lookup4_per_thread(void)
{
	lookup4_per_flags(2);
}

/* Asks the old lookup function for the new one. */
static void lookup5_by_4(void)
{
	lookup4_fn lookup = itself4((lookup4_fn)symbol("cuGetProcAddress"));
	void *found = NULL;

	APP_MUST(lookup("cuGetProcAddress", &found, 12000, 0));
	by_lookup5(itself5((lookup5_fn)found), 0);
}

static void print_lookup(lookup5_fn lookup, const char *name, int version, uint64_t flags)
{
	void *found = &found;
	int status = -1;
	int r = lookup(name, &found, version, flags, &status);

	printf("%s %d: result %d, %s, status %d\n", name, version, r,
		found == &found ? "left alone"
		: found         ? "found"
				: "NULL",
		status);
}

/* All ways lead to one address, and a missing function is reported as by the driver. */
static void answers(void)
{
	lookup5_fn lookup = (lookup5_fn)symbol("cuGetProcAddress_v2");
	void *found = NULL;

	for (size_t i = 0; i < LENGTH(rows); i++) {
		APP_MUST(lookup(rows[i].name, &found, rows[i].version, 0, NULL));
		printf("%s: same %d\n", rows[i].name, found == symbol(rows[i].symbol));
		APP_MUST(lookup(rows[i].name, &found, rows[i].version, 2, NULL));
		printf("%s: same per thread %d\n", rows[i].name, found == symbol(rows[i].per_thread_symbol));
	}
	print_lookup(lookup, "cuNoSuchThing", 12000, 0);
	print_lookup(lookup, "", 0, 0);
	print_lookup(lookup, "cuMemAlloc", 1000, 0);
	print_lookup(lookup, "cuMemAlloc", 99999, 0);
	print_lookup(lookup, "cuMemFreeAsync", 11010, 0);
	app_result("NULL output", lookup("cuMemAlloc", NULL, 3020, 0, NULL));
	app_result("NULL name", lookup(NULL, &found, 3020, 0, NULL));
	APP_MUST(lookup("cuMemAlloc", &found, 2000, 0, NULL));
	printf("the 32-bit function: same %d\n", found == symbol("cuMemAlloc"));
	printf("cuNoSuchThing: %d\n", symbol("cuNoSuchThing") == NULL);
}

/* Functions that early drivers do not have. */
static void missing(void)
{
	static const char *const names[] = {"cuCtxRecordEvent", "cuCtxCreate_v4", "cuCtxGetId", "cuGetProcAddress_v2",
		"cuGetProcAddress", "cuInit"};

	for (size_t i = 0; i < LENGTH(names); i++)
		symbol(names[i]);
}

const struct app_scenario app_scenarios[] = {
	{"dlsym", by_dlsym},
	{"dlsym-per-thread", by_dlsym_per_thread},
	{"default", by_default},
	{"lookup4", lookup4},
	{"lookup4-per-thread", lookup4_per_thread},
	{"lookup5", lookup5},
	{"lookup5-per-thread", lookup5_per_thread},
	{"lookup5-by-4", lookup5_by_4},
	{"answers", answers},
	{"missing", missing},
	{0},
};
