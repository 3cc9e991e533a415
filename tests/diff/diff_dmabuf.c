/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Exports of ordinary memory as dma-bufs, as programs for RDMA make them: whole blocks and parts of blocks, before and
 * after the first export of the process, of fresh memory and of memory that was used before. The driver exports only
 * ranges that begin and end at a page of the host. Each scenario has its own process, and so its own first export.
 */

#include <unistd.h>

#include "tests/preload/app_driver.h"
#include "tests/sim/abi.h"

enum { N_LIVE = 24, N_STEPS = 400 };

static size_t page;

/* Returns false, and prints a line, if the device cannot export. */
static bool start(void)
{
	int can = 0;

	app_start();
	APP_MUST(cuDeviceGetAttribute(&can, CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED, 0));
	page = (size_t)sysconf(_SC_PAGESIZE);
	if (!can)
		printf("skipped: the device exports no dma-buf\n");
	return can != 0;
}

static CUresult export(CUdeviceptr ptr, size_t bytes)
{
	int fd = -1;
	CUresult r = cuMemGetHandleForAddressRange(&fd, ptr, bytes, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0);

	if (!r)
		close(fd);
	return r;
}

/* Rounds the size of a block down to whole pages. */
static size_t whole_pages(size_t bytes)
{
	return bytes / page * page;
}

static void report(const char *what, size_t bytes, CUresult r)
{
	char name[64];

	snprintf(name, sizeof(name), "%s of %zu bytes", what, bytes);
	app_result(name, r);
}

/* All are larger than the blocks that the driver packs into one chunk. Most of the second half are not whole pages. */
static const size_t sizes[] = {3 * MIB, 6 * MIB, 9 * MIB, 12 * MIB, 15 * MIB, 18 * MIB, 2 * MIB, 64 * MIB,
	MIB + 64 * KIB, MIB + 1, MIB + 512, 2 * MIB - 1, 3 * MIB + 1000, 5 * MIB - 512, 7 * MIB + 4097, 33 * MIB + 5};

static void export_all(const CUdeviceptr *ptr)
{
	for (size_t i = 0; i < LENGTH(sizes); i++)
		report("export", sizes[i], export(ptr[i], whole_pages(sizes[i])));
}

static void alloc_all(CUdeviceptr *ptr)
{
	for (size_t i = 0; i < LENGTH(sizes); i++)
		ptr[i] = app_alloc(sizes[i]);
}

static void free_all(const CUdeviceptr *ptr)
{
	for (size_t i = 0; i < LENGTH(sizes); i++)
		APP_MUST(cuMemFree_v2(ptr[i]));
}

/* The old blocks were allocated before the first export, the new ones after it. */
static void blocks(void)
{
	CUdeviceptr old[LENGTH(sizes)], new[LENGTH(sizes)];

	if (!start())
		return;
	alloc_all(old);
	export_all(old);
	alloc_all(new);
	export_all(new);
	free_all(new);
	free_all(old);
}

static void one_at_a_time(void)
{
	if (!start())
		return;
	for (size_t i = 0; i < LENGTH(sizes); i++) {
		CUdeviceptr ptr = app_alloc(sizes[i]);

		report("export", sizes[i], export(ptr, whole_pages(sizes[i])));
		APP_MUST(cuMemFree_v2(ptr));
	}
}

static void first_export_of(size_t bytes)
{
	CUdeviceptr ptr;

	if (!start())
		return;
	ptr = app_alloc(bytes);
	report("export", bytes, export(ptr, whole_pages(bytes)));
	APP_MUST(cuMemFree_v2(ptr));
}

static void first_small_segment(void)
{
	first_export_of(4 * MIB);
}

static void first_unaligned_size(void)
{
	first_export_of(4 * MIB + 1000);
}

static void first_own_segment(void)
{
	first_export_of(64 * MIB);
}

/* Allocates and frees blocks of all sizes, so that the large ones lie where other blocks lay before. */
static void used_before(void)
{
	CUdeviceptr ptr[N_LIVE] = {0};
	size_t bytes[N_LIVE] = {0};
	unsigned seed = 7, n_large = 0, n_refused = 0;

	if (!start())
		return;
	for (unsigned i = 0; i < N_STEPS; i++) {
		unsigned k = app_random(&seed) % N_LIVE;

		if (ptr[k])
			APP_MUST(cuMemFree_v2(ptr[k]));
		bytes[k] = 1 + (size_t)app_random(&seed) % 1024 * (i % 3 ? 16000 : 700);
		ptr[k] = app_alloc(bytes[k]);
	}
	for (unsigned k = 0; k < N_LIVE; k++) {
		if (bytes[k] <= MIB)
			continue;
		n_large++;
		n_refused += export(ptr[k], whole_pages(bytes[k])) != CUDA_SUCCESS;
	}
	for (unsigned k = 0; k < N_LIVE; k++)
		if (ptr[k])
			APP_MUST(cuMemFree_v2(ptr[k]));
	app_say("large blocks", "%u", n_large);
	app_say("refused", "%u", n_refused);
}

/* Exports parts of a block that begin at pages, as RDMA programs do. With vmm the block consists of several chunks. */
static void parts(void)
{
	static const struct {
		size_t offset, bytes; /* in units of 64 KiB, a multiple of every machine's page size */
	} rows[] = {{0, 1}, {0, 144}, {1, 1}, {1, 143}, {5, 32}, {31, 1}, {31, 2}, {32, 32}, {64, 80}, {143, 1}};
	CUdeviceptr before, ptr;

	if (!start())
		return;
	before = app_alloc(3 * MIB + 1000);
	ptr = app_alloc(9 * MIB);
	for (size_t i = 0; i < LENGTH(rows); i++) {
		char name[64];

		snprintf(name, sizeof(name), "64 KiB times %zu from %zu on", rows[i].bytes, rows[i].offset);
		app_result(name, export(ptr + rows[i].offset * 64 * KIB, rows[i].bytes * 64 * KIB));
	}
	app_result("one page in the middle", export(ptr + 4 * MIB + page, page));
	app_result("all but the first and the last page", export(ptr + page, 9 * MIB - 2 * page));
	APP_MUST(cuMemFree_v2(ptr));
	APP_MUST(cuMemFree_v2(before));
}

/* The driver's small blocks begin at pages as long as every small request of the program is a multiple of a page. */
static void small_blocks(void)
{
	static const size_t small[] = {64 * KIB, 64 * KIB, 128 * KIB, 192 * KIB, 512 * KIB, MIB, 256 * KIB, 64 * KIB};
	CUdeviceptr ptr[LENGTH(small)];

	if (!start())
		return;
	for (unsigned round = 0; round < 2; round++) {
		for (size_t i = 0; i < LENGTH(small); i++)
			ptr[i] = app_alloc(small[i]);
		for (size_t i = 0; i < LENGTH(small); i++)
			report("export", small[i], export(ptr[i], small[i]));
		for (size_t i = 0; i < LENGTH(small); i++)
			APP_MUST(cuMemFree_v2(ptr[i]));
	}
}

/*
 * Programs export a block of any size rounded up to whole pages. The simulated driver has no memory behind the block; a
 * real one may have some.
 */
static void rounded_up(void)
{
	CUdeviceptr ptr[LENGTH(sizes)];

	if (!start())
		return;
	if (app_is_simulated()) {
		printf("skipped: blocks of the simulated driver end with their last byte\n");
		return;
	}
	alloc_all(ptr);
	for (size_t i = 0; i < LENGTH(sizes); i++)
		if (sizes[i] % page)
			report("export", sizes[i], export(ptr[i], whole_pages(sizes[i]) + page));
	free_all(ptr);
}

static void refused(void)
{
	CUdeviceptr ptr;
	int fd = -1;

	if (!start())
		return;
	ptr = app_alloc(8 * MIB);
	app_result("inside a page", export(ptr + 512, 4 * MIB));
	app_result("a part of a page", export(ptr, 4 * MIB + 512));
	app_result("less than a page", export(ptr, 512));
	app_result("no bytes", export(ptr, 0));
	app_result("no memory", export(0, page));
	app_result("another kind of handle", cuMemGetHandleForAddressRange(&fd, ptr, 4 * MIB, 77, 0));
	app_result("the block itself", export(ptr, 8 * MIB));
	APP_MUST(cuMemFree_v2(ptr));
	app_result("once it is freed", export(ptr, 8 * MIB));
}

const struct app_scenario app_scenarios[] = {
	{"blocks", blocks, 0},
	{"one_at_a_time", one_at_a_time, 0},
	{"first_small_segment", first_small_segment, 0},
	{"first_unaligned_size", first_unaligned_size, 0},
	{"first_own_segment", first_own_segment, 0},
	{"used_before", used_before, 0},
	{"parts", parts, 0},
	{"small_blocks", small_blocks, 0},
	{"rounded_up", rounded_up, 0},
	{"refused", refused, 0},
	{0},
};
