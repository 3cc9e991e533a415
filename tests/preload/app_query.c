/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Queries about memory, and exports of memory to other processes. */

#include "app_driver.h"
#include "tests/sim/abi.h"

static size_t free_bytes(void)
{
	size_t bytes = 0;

	APP_MUST(cuMemGetInfo_v2(&bytes, NULL));
	return bytes;
}

/* The query reports as much free memory as without any cache. */
static void info(void)
{
	size_t before, total, after_total;
	CUdeviceptr ptr[8];

	app_start();
	APP_MUST(cuMemGetInfo_v2(&before, &total));
	for (size_t i = 0; i < LENGTH(ptr); i++)
		ptr[i] = app_alloc((i + 1) * 8 * MIB);
	printf("allocated memory is not free %d\n",
		before - free_bytes() >= 288 * MIB && before - free_bytes() <= 320 * MIB);
	for (size_t i = 0; i < LENGTH(ptr); i++)
		APP_MUST(cuMemFree_v2(ptr[i]));
	APP_MUST(cuCtxSynchronize());
	printf("freed memory is free again %d\n", before - free_bytes() <= 2 * MIB);
	APP_MUST(cuMemGetInfo_v2(NULL, &after_total));
	printf("total unchanged %d\n", total == after_total);
	app_fact("total", total);
	app_fact("free", before);
	app_pause("info");
}

/* Most of the memory that is reported as free can be allocated. */
static void take_free(void)
{
	unsigned seed = 3;

	app_start();
	for (unsigned round = 0; round < 30; round++) {
		CUdeviceptr ptr[16];
		CUdeviceptr large;

		for (size_t i = 0; i < LENGTH(ptr); i++)
			ptr[i] = app_alloc(1 + app_random(&seed) * 512u);
		for (size_t i = 0; i < LENGTH(ptr); i++)
			APP_MUST(cuMemFree_v2(ptr[i]));
		app_result("nine tenths of the free memory", cuMemAlloc_v2(&large, free_bytes() / 10 * 9));
		APP_MUST(cuMemFree_v2(large));
	}
}

static void check_block(CUdeviceptr ptr, size_t bytes, size_t offset)
{
	CUdeviceptr base = 0, start = 0, batch_start = 0;
	size_t size = 0, range_size = 0;
	uint64_t id = 0, batch_id = 1;
	int type = 0, ordinal = -1;

	APP_MUST(cuMemGetAddressRange_v2(&base, &size, ptr + offset));
	APP_MUST(cuMemGetAddressRange_v2(NULL, NULL, ptr + offset));
	APP_MUST(cuPointerGetAttribute(&start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, ptr + offset));
	APP_MUST(cuPointerGetAttribute(&range_size, CU_POINTER_ATTRIBUTE_RANGE_SIZE, ptr + offset));
	APP_MUST(cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, ptr + offset));
	APP_MUST(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, ptr + offset));
	APP_MUST(cuPointerGetAttributes(3,
		(int[]){CU_POINTER_ATTRIBUTE_BUFFER_ID, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
			CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL},
		(void *[]){&batch_id, &batch_start, &ordinal}, ptr + offset));
	printf("%zu + %zu: base %d, size %d, range %d %d, batch %d %d, type %d, device %d\n", bytes, offset,
		base == ptr, size >= bytes, start == ptr, range_size == size, batch_id == id, batch_start == ptr, type,
		ordinal);
}

static void range(void)
{
	static const size_t sizes[] = {1, 512, 1000, 64 * KIB, MIB, MIB + 1, 5 * MIB};
	CUdeviceptr ptr[LENGTH(sizes)];

	app_start();
	for (unsigned round = 0; round < 2; round++) {
		for (size_t i = 0; i < LENGTH(sizes); i++)
			ptr[i] = app_alloc(sizes[i]);
		for (size_t i = 0; i < LENGTH(sizes); i++) {
			check_block(ptr[i], sizes[i], 0);
			check_block(ptr[i], sizes[i], sizes[i] - 1);
		}
		for (size_t i = 0; i < LENGTH(sizes); i++)
			APP_MUST(cuMemFree_v2(ptr[i]));
	}
	app_result("range of an invalid address", cuMemGetAddressRange_v2(NULL, NULL, 64));
}

/* An id names one life of a block: it never repeats, and it does not change during that life. */
static void ids(void)
{
	enum { LIVES = 24 };
	uint64_t seen[LIVES], again;
	unsigned repeated = 0, changed = 0;

	app_start();
	for (unsigned i = 0; i < LIVES; i++) {
		CUdeviceptr ptr = app_alloc(i % 2 ? MIB : 1000);

		APP_MUST(cuPointerGetAttribute(&seen[i], CU_POINTER_ATTRIBUTE_BUFFER_ID, ptr));
		APP_MUST(cuPointerGetAttribute(&again, CU_POINTER_ATTRIBUTE_BUFFER_ID, ptr));
		changed += again != seen[i];
		for (unsigned k = 0; k < i; k++)
			repeated += seen[k] == seen[i];
		APP_MUST(cuMemFree_v2(ptr));
	}
	printf("repeated %u, changed %u\n", repeated, changed);
}

/* Returns the id of the driver's allocation that contains an address. Such an id is never used again. */
static uint64_t allocation_of(CUdeviceptr ptr)
{
	uint64_t id = 0;

	APP_MUST(cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID, ptr));
	return id;
}

/*
 * Counts blocks in the allocation `freed`. Memory that another process may hold must not return. Its address may,
 * with other memory behind it.
 */
static unsigned count_returns(uint64_t freed, size_t bytes)
{
	CUdeviceptr ptr[64];
	unsigned returns = 0;

	for (unsigned round = 0; round < 4; round++) {
		for (size_t i = 0; i < LENGTH(ptr); i++) {
			ptr[i] = app_alloc(bytes);
			returns += allocation_of(ptr[i]) == freed;
		}
		for (size_t i = 0; i < LENGTH(ptr); i++)
			APP_MUST(cuMemFree_v2(ptr[i]));
	}
	return returns;
}

/*
 * A whole driver allocation can be exported, and a part of a segment is refused. Results that differ between pools
 * are facts.
 */
static void export(void)
{
	static const size_t sizes[] = {1000, 2 * MIB, 64 * MIB};
	CUipcMemHandle handle;
	unsigned on = 1;

	app_start();
	for (size_t i = 0; i < LENGTH(sizes); i++) {
		CUdeviceptr ptr = app_alloc(sizes[i]);
		uint64_t allocation = allocation_of(ptr);
		char name[32];

		snprintf(name, sizeof(name), "ipc-%zu", sizes[i]);
		app_fact(name, (uint64_t)cuIpcGetMemHandle(&handle, ptr));
		app_fact_calls("cuIpcGetMemHandle");
		APP_MUST(cuMemFree_v2(ptr));
		snprintf(name, sizeof(name), "returns-%zu", sizes[i]);
		app_fact(name, count_returns(allocation, sizes[i]));
		app_result("free again", cuMemFree_v2(ptr));
	}
	app_result("handle of an invalid address", cuIpcGetMemHandle(&handle, 64));
	for (size_t i = 1; i < LENGTH(sizes); i++) {
		CUdeviceptr ptr = app_alloc(sizes[i]);

		APP_MUST(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, ptr));
		APP_MUST(cuMemFree_v2(ptr));
		ptr = app_alloc(sizes[i]);
		APP_MUST(cuPointerGetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, ptr));
		app_result("a new block has synchronous operations", (int)on);
		APP_MUST(cuMemFree_v2(ptr));
		on = 1;
	}
	app_pause("export");
	app_report_driver();
}

const struct app_scenario app_scenarios[] = {
	{"info", info},
	{"take-free", take_free},
	{"range", range},
	{"ids", ids},
	{"export", export},
	{0},
};
