/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Scenarios for a device of 1 GiB that run out of memory. Each fills the device with blocks, frees them, and makes a
 * large request of another kind, which a driver with all of its memory back would grant.
 */

#include "app_driver.h"
#include "tests/sim/abi.h"

enum { MANY = 2048 };

static CUdeviceptr blocks[MANY];

static const size_t large = 800 * MIB;

/* Allocates blocks of a size until one is refused. Returns their number. */
static unsigned fill_up(size_t bytes)
{
	unsigned n = 0;
	CUresult r = CUDA_SUCCESS;

	while (n < MANY && !r) {
		r = cuMemAlloc_v2(&blocks[n], bytes);
		n += !r;
	}
	if (r)
		app_result("refused with", r);
	return n;
}

static void free_blocks(unsigned n)
{
	while (n)
		APP_MUST(cuMemFree_v2(blocks[--n]));
}

/* Fills the device with cached blocks of one size. */
static void fill_and_empty(void)
{
	unsigned n = fill_up(8 * MIB);

	printf("most of the device %d\n", n * 8 >= 900);
	free_blocks(n);
}

static void capacity(void)
{
	CUdeviceptr ptr = 0x5a5a;
	unsigned n;

	app_start();
	n = fill_up(64 * MIB);
	printf("blocks %d\n", n >= 14 && n <= 16);
	app_result("one more block", cuMemAlloc_v2(&ptr, 256 * MIB));
	printf("left alone %d, NULL %d\n", ptr == 0x5a5a, ptr == 0);
	APP_MUST(cuMemFree_v2(blocks[--n]));
	app_result("as much as was freed", cuMemAlloc_v2(&blocks[n++], 64 * MIB));
	free_blocks(n);
	app_result("nearly all of the device", cuMemAlloc_v2(&ptr, 900 * MIB));
	APP_MUST(cuMemFree_v2(ptr));
	app_result("more than the device has", cuMemAlloc_v2(&ptr, 1100 * MIB));
	app_result("nearly all of the device again", cuMemAlloc_v2(&ptr, 900 * MIB));
}

static void device(void)
{
	CUdeviceptr ptr;

	app_start();
	fill_and_empty();
	for (unsigned i = 0; i < 3; i++) {
		app_result("large", cuMemAlloc_v2(&ptr, large));
		app_fill(NULL, ptr + large - 4096, 4096, 5);
		app_result("wrong words", (int)app_count_wrong(NULL, ptr + large - 4096, 4096, 5));
		APP_MUST(cuMemFree_v2(ptr));
		fill_and_empty();
	}
	app_pause("oom");
}

static void managed(void)
{
	CUdeviceptr ptr;

	app_start();
	fill_and_empty();
	app_result("large", cuMemAllocManaged(&ptr, large, 1));
	app_result("free", cuMemFree_v2(ptr));
	fill_and_empty();
}

static void async(void)
{
	CUdeviceptr ptr;
	CUstream stream;

	app_start();
	stream = app_stream();
	fill_and_empty();
	app_result("large", cuMemAllocAsync(&ptr, large, stream));
	app_result("free", cuMemFreeAsync(ptr, stream));
	APP_MUST(cuStreamSynchronize(stream));
	fill_and_empty();
}

static void physical(void)
{
	CUmemAllocationProp properties = {
		.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
	CUmemGenericAllocationHandle handle;

	app_start();
	fill_and_empty();
	app_result("large", cuMemCreate(&handle, large, &properties, 0));
	app_result("release", cuMemRelease(handle));
	fill_and_empty();
}

static void array(void)
{
	CUDA_ARRAY_DESCRIPTOR shape = {.Width = MIB, .Height = large / MIB / 4, .Format = 0x20, .NumChannels = 1};
	CUarray handle;

	app_start();
	fill_and_empty();
	app_result("large", cuArrayCreate_v2(&handle, &shape));
	app_result("destroy", cuArrayDestroy(handle));
	fill_and_empty();
}

static void pitched(void)
{
	CUdeviceptr ptr;
	size_t pitch;

	app_start();
	fill_and_empty();
	app_result("large", cuMemAllocPitch_v2(&ptr, &pitch, MIB, large / MIB, 4));
	APP_MUST(cuMemFree_v2(ptr));
}

/* The driver's own pool keeps memory that was freed to it. */
static void driver_pool(void)
{
	CUdeviceptr ptr;
	CUmemoryPool pool;
	CUstream stream;
	uint64_t keep = UINT64_MAX;

	app_start();
	stream = app_stream();
	APP_MUST(cuDeviceGetDefaultMemPool(&pool, 0));
	APP_MUST(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
	APP_MUST(cuMemAllocAsync(&ptr, large, stream));
	APP_MUST(cuMemFreeAsync(ptr, stream));
	APP_MUST(cuStreamSynchronize(stream));
	app_fact("large", (uint64_t)cuMemAlloc_v2(&ptr, large));
	printf("done\n");
}

/* Everything is freed while a kernel still runs. The driver's own free would have waited for the kernel. */
static void busy(void)
{
	CUdeviceptr ptr;
	CUstream stream;
	unsigned n;

	app_start();
	stream = app_stream();
	n = fill_up(8 * MIB);
	app_spin(stream, 50000);
	free_blocks(n);
	app_result("large", cuMemAlloc_v2(&ptr, large));
}

/* Every fourth of the blocks that fill the device is freed. The request is larger than each gap. */
static void gaps(void)
{
	CUdeviceptr ptr;
	unsigned n;

	app_start();
	n = fill_up(4 * MIB);
	for (unsigned i = 1; i < n; i += 4)
		APP_MUST(cuMemFree_v2(blocks[i]));
	app_fact("gap bytes", (n + 2) / 4 * 4 * MIB);
	app_fact("large", (uint64_t)cuMemAlloc_v2(&ptr, 20 * MIB));
	app_pause("gaps");
}

/* The program can allocate all memory that the driver's query reports as free. */
static void limit(void)
{
	size_t free_bytes = 0, total_bytes = 0;
	CUdeviceptr ptr = 0, managed_ptr = 0;
	void *host;
	unsigned n = 0;

	app_start();
	APP_MUST(cuMemGetInfo_v2(&free_bytes, &total_bytes));
	app_fact("total", total_bytes);
	app_fact("free", free_bytes);
	while (n < MANY && !cuMemAlloc_v2(&blocks[n], 2 * MIB))
		n++;
	app_fact("blocks", n);
	app_fact("4 MiB more", (uint64_t)cuMemAlloc_v2(&ptr, 4 * MIB));
	app_fact("managed", (uint64_t)cuMemAllocManaged(&managed_ptr, 64 * MIB, 1));
	APP_MUST(cuMemGetInfo_v2(&free_bytes, NULL));
	app_fact("free when full", free_bytes);
	free_blocks(n);
	app_fact("alloc after the frees", (uint64_t)cuMemAlloc_v2(&ptr, 32 * MIB));
	app_fact("pinned", (uint64_t)cuMemHostAlloc(&host, 64 * MIB, 0));
	app_pause("limit");
	printf("done\n");
}

const struct app_scenario app_scenarios[] = {
	{"capacity", capacity},
	{"device", device},
	{"managed", managed},
	{"async", async},
	{"physical", physical},
	{"array", array},
	{"pitched", pitched},
	{"driver-pool", driver_pool},
	{"busy", busy},
	{"gaps", gaps},
	{"limit", limit},
	{0},
};
