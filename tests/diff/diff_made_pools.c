/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Pools that the program has made with cuMemPoolCreate: their attributes beside those of other pools, the data in their
 * memory, and what stays of it after their end.
 */

#include "tests/preload/app_driver.h"
#include "tests/sim/abi.h"

enum { ROUNDS = 48, N_POOLS = 20 };

static CUstream stream;

static void start(void)
{
	app_start();
	stream = app_stream();
}

static CUmemPoolProps plain(void)
{
	return (CUmemPoolProps){
		.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0},
	};
}

static CUmemoryPool new_pool(void)
{
	const CUmemPoolProps properties = plain();
	CUmemoryPool pool = NULL;

	APP_MUST(cuMemPoolCreate(&pool, &properties));
	return pool;
}

static CUmemoryPool default_pool(void)
{
	CUmemoryPool pool = NULL;

	APP_MUST(cuDeviceGetDefaultMemPool(&pool, 0));
	return pool;
}

static CUdeviceptr take(CUmemoryPool pool, size_t bytes)
{
	CUdeviceptr ptr = 0;

	APP_MUST(cuMemAllocFromPoolAsync(&ptr, bytes, pool, stream));
	return ptr;
}

static void give(CUdeviceptr ptr)
{
	APP_MUST(cuMemFreeAsync(ptr, stream));
}

static uint64_t attribute(CUmemoryPool pool, int which)
{
	uint64_t value = 0;

	APP_MUST(cuMemPoolGetAttribute(pool, which, &value));
	return value;
}

static bool is_from(CUdeviceptr ptr, CUmemoryPool pool)
{
	CUmemoryPool found = NULL;

	APP_MUST(cuPointerGetAttribute(&found, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, ptr));
	return found == pool;
}

static void say_used(const char *when, const CUmemoryPool pools[static 3])
{
	for (int i = 0; i < 3; i++)
		app_say(when, "pool %d: used %llu, at most %llu", i,
			(unsigned long long)attribute(pools[i], CU_MEMPOOL_ATTR_USED_MEM_CURRENT),
			(unsigned long long)attribute(pools[i], CU_MEMPOOL_ATTR_USED_MEM_HIGH));
}

/* Each pool counts what is allocated from it, until any kind of free. */
static void books(void)
{
	uint64_t none = 0, threshold = 64 * MIB;
	CUmemoryPool pools[3];
	CUdeviceptr ptrs[3], more;

	start();
	pools[0] = new_pool();
	pools[1] = new_pool();
	pools[2] = default_pool();
	say_used("at first", pools);
	app_say("reserved at first", "%d", (int)attribute(pools[0], CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT));
	app_result("set the threshold", cuMemPoolSetAttribute(pools[0], CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
	app_say("thresholds", "%d %d", attribute(pools[0], CU_MEMPOOL_ATTR_RELEASE_THRESHOLD) == threshold,
		(int)attribute(pools[1], CU_MEMPOOL_ATTR_RELEASE_THRESHOLD));
	for (int i = 0; i < 3; i++)
		ptrs[i] = take(pools[i], (size_t)(2 << i) * MIB);
	for (int i = 0; i < 3; i++)
		app_say("its pool", "%d", is_from(ptrs[i], pools[i]));
	say_used("allocated", pools);
	for (int i = 0; i < 3; i++)
		app_say("reserved", "%d",
			attribute(pools[i], CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) >= (uint64_t)(2 << i) * MIB);
	more = take(pools[0], 4 * MIB);
	say_used("more of one", pools);
	give(more);
	APP_MUST(cuStreamSynchronize(stream));
	say_used("freed again", pools);
	app_result("restart a mark", cuMemPoolSetAttribute(pools[0], CU_MEMPOOL_ATTR_USED_MEM_HIGH, &none));
	app_result("restart that of the default pool",
		cuMemPoolSetAttribute(pools[2], CU_MEMPOOL_ATTR_USED_MEM_HIGH, &none));
	say_used("after the restarts", pools);
	for (int i = 0; i < 3; i++)
		give(ptrs[i]);
	APP_MUST(cuStreamSynchronize(stream));
	say_used("all freed", pools);
	for (int i = 0; i < 3; i++)
		app_result("trim", cuMemPoolTrimTo(pools[i], 0));
	for (int i = 0; i < 3; i++)
		app_say("reserved after the trims", "%d",
			(int)attribute(pools[i], CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT));
	app_result("destroy", cuMemPoolDestroy(pools[0]));
	app_result("destroy", cuMemPoolDestroy(pools[1]));
}

/* A block goes from pool to pool, and counts for the one that it was allocated from last. */
static void by_turns(void)
{
	CUmemoryPool pools[3];

	start();
	pools[0] = new_pool();
	pools[1] = new_pool();
	pools[2] = default_pool();
	for (unsigned i = 0; i < 3 * ROUNDS; i++) {
		CUdeviceptr ptr = take(pools[i % 3], MIB);

		if (!is_from(ptr, pools[i % 3]))
			app_say("of another pool", "%u", i);
		if (attribute(pools[i % 3], CU_MEMPOOL_ATTR_USED_MEM_CURRENT) != MIB)
			app_say("used differs", "%u", i);
		give(ptr);
		APP_MUST(cuStreamSynchronize(stream));
		if (attribute(pools[i % 3], CU_MEMPOOL_ATTR_USED_MEM_CURRENT))
			app_say("used after the free", "%u", i);
	}
	say_used("at the end", pools);
}

static size_t reuse_once(CUmemoryPool pool, CUmemoryPool next, CUstream second, size_t bytes, unsigned value)
{
	size_t touched = bytes < 64 * KIB ? bytes : 64 * KIB, wrong;
	CUdeviceptr a = take(pool, bytes), b;

	app_spin_fill(stream, a, touched, value, value % 4 * MS / 4);
	give(a);
	APP_MUST(cuMemAllocFromPoolAsync(&b, bytes, next, second));
	app_fill(second, b, touched, value + 1);
	wrong = app_count_wrong(second, b, touched, value + 1);
	APP_MUST(cuMemFreeAsync(b, second));
	return wrong;
}

/* Memory goes from pool to pool while work of its last owner still runs, on the same stream and on another one. */
static void reuse(void)
{
	static const size_t sizes[] = {4 * KIB, MIB, 9 * MIB};
	CUstream streams[2];
	CUmemoryPool pools[3];
	size_t wrong = 0;

	start();
	streams[0] = stream;
	streams[1] = app_stream();
	pools[0] = new_pool();
	pools[1] = new_pool();
	pools[2] = default_pool();
	for (unsigned i = 0; i < ROUNDS; i++)
		wrong += reuse_once(
			pools[i % 3], pools[(i + i / 3) % 3], streams[i / 3 % 2], sizes[i / 6 % LENGTH(sizes)], i);
	APP_MUST(cuCtxSynchronize());
	app_say("wrong words", "%zu", wrong);
}

/* Memory of a pool stays valid when the pool is destroyed, until it is freed. */
static void destroyed(void)
{
	CUdeviceptr ptr, none = 1;
	CUmemoryPool pool, later;
	uint64_t value = 0;

	start();
	pool = new_pool();
	ptr = take(pool, MIB);
	app_fill(stream, ptr, 64 * KIB, 7);
	app_result("destroy", cuMemPoolDestroy(pool));
	later = new_pool();
	app_fill(stream, take(later, MIB), 64 * KIB, 8);
	app_say("wrong words", "%zu", app_count_wrong(stream, ptr, 64 * KIB, 7));
	app_say("of the later one", "%d", is_from(ptr, later));
	app_say("used of the later one", "%d", attribute(later, CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == MIB);
	app_result("free", cuMemFreeAsync(ptr, stream));
	APP_MUST(cuCtxSynchronize());
	app_say("used of the later one", "%d", attribute(later, CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == MIB);
	app_result("no pool", cuMemPoolGetAttribute(NULL, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &value));
	app_result("from no pool", cuMemAllocFromPoolAsync(&none, MIB, NULL, stream));
}

/* A pool that the program makes its device's current one serves cuMemAllocAsync. */
static void current(void)
{
	CUmemoryPool pool;
	CUdeviceptr ptr;

	start();
	pool = new_pool();
	app_result("choose", cuDeviceSetMemPool(0, pool));
	for (int i = 0; i < 3; i++) {
		APP_MUST(cuMemAllocAsync(&ptr, MIB, stream));
		app_fill(stream, ptr, 64 * KIB, 3);
		app_say("of the pool", "%d", is_from(ptr, pool));
		app_say("used", "%d", attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == MIB);
		app_say("used of the default pool", "%d",
			(int)attribute(default_pool(), CU_MEMPOOL_ATTR_USED_MEM_CURRENT));
		app_say("wrong words", "%zu", app_count_wrong(stream, ptr, 64 * KIB, 3));
		give(ptr);
		APP_MUST(cuStreamSynchronize(stream));
		app_say("used after the free", "%d", (int)attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT));
	}
	app_result("destroy", cuMemPoolDestroy(pool));
	APP_MUST(cuMemAllocAsync(&ptr, MIB, stream));
	app_say("of the default pool", "%d", is_from(ptr, default_pool()));
	give(ptr);
	APP_MUST(cuStreamSynchronize(stream));
}

/* More pools than gpupool counts for, made and destroyed with memory in use, again and again. */
static void many(void)
{
	CUmemoryPool pools[N_POOLS];
	CUdeviceptr ptrs[N_POOLS];

	start();
	for (int round = 0; round < 3; round++) {
		int n_wrong = 0;

		for (int i = 0; i < N_POOLS; i++) {
			pools[i] = new_pool();
			ptrs[i] = take(pools[i], MIB);
		}
		for (int i = 0; i < N_POOLS; i++)
			n_wrong += attribute(pools[i], CU_MEMPOOL_ATTR_USED_MEM_CURRENT) != MIB ||
				   attribute(pools[i], CU_MEMPOOL_ATTR_USED_MEM_HIGH) != MIB ||
				   !is_from(ptrs[i], pools[i]);
		for (int i = 0; i < N_POOLS; i++)
			app_result("destroy", cuMemPoolDestroy(pools[i]));
		for (int i = 0; i < N_POOLS; i++)
			give(ptrs[i]);
		APP_MUST(cuCtxSynchronize());
		app_say("wrong pools", "%d", n_wrong);
	}
}

/* Pools that gpupool does not serve. Not every device has all of them. */
static void kinds(void)
{
	CUmemPoolProps of_max = plain(), shareable = plain();
	const CUmemPoolProps *const kinds[] = {&of_max, &shareable};
	CUmemoryPool pool;
	CUdeviceptr ptr;

	start();
	of_max.maxSize = 64 * MIB;
	shareable.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
	for (unsigned i = 0; i < LENGTH(kinds); i++) {
		CUresult r = cuMemPoolCreate(&pool, kinds[i]);

		app_result("create", r);
		if (r)
			continue;
		ptr = take(pool, MIB);
		app_fill(stream, ptr, 4 * KIB, i);
		app_say("wrong words", "%zu", app_count_wrong(stream, ptr, 4 * KIB, i));
		app_say("its pool", "%d", is_from(ptr, pool));
		app_say("used", "%d", attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == MIB);
		give(ptr);
		APP_MUST(cuStreamSynchronize(stream));
		app_say("used after the free", "%d", (int)attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT));
		app_result("destroy", cuMemPoolDestroy(pool));
	}
}

const struct app_scenario app_scenarios[] = {
	{"books", books},
	{"by-turns", by_turns},
	{"reuse", reuse},
	{"destroyed", destroyed},
	{"current", current},
	{"many", many},
	{"kinds", kinds},
	{0},
};
