/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Pools of stream-ordered memory that are opened to another device, before and after memory is allocated from them. The
 * other device's kernels write to that memory, so an answer differs if gpupool has not opened its own memory too.
 */

#include "devices.h"

enum { N_BLOCKS = 4 };

static const size_t bytes_of[N_BLOCKS] = {WORDS * sizeof(uint32_t), 64 * KIB, MIB, 48 * MIB};

static CUmemoryPool default_pool(void)
{
	CUmemoryPool pool = NULL;

	APP_MUST(cuDeviceGetDefaultMemPool(&pool, 0));
	return pool;
}

static CUmemoryPool new_pool(void)
{
	const CUmemPoolProps properties = {
		.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0},
	};
	CUmemoryPool pool = NULL;

	APP_MUST(cuMemPoolCreate(&pool, &properties));
	return pool;
}

/* Sets what the other device may do with the pool's memory. */
static void set_access(CUmemoryPool pool, int flags)
{
	const CUmemAccessDesc access = {.location = {CU_MEM_LOCATION_TYPE_DEVICE, 1}, .flags = flags};

	app_result("access", cuMemPoolSetAccess(pool, &access, 1));
}

static void take_all(CUmemoryPool pool, CUdeviceptr ptrs[static N_BLOCKS])
{
	devices_enter(0);
	for (int i = 0; i < N_BLOCKS; i++)
		APP_MUST(cuMemAllocFromPoolAsync(&ptrs[i], bytes_of[i], pool, devices[0].stream));
	APP_MUST(cuStreamSynchronize(devices[0].stream));
}

static void give_all(const CUdeviceptr ptrs[static N_BLOCKS])
{
	devices_enter(0);
	for (int i = 0; i < N_BLOCKS; i++)
		APP_MUST(cuMemFreeAsync(ptrs[i], devices[0].stream));
	APP_MUST(cuStreamSynchronize(devices[0].stream));
}

/* A kernel of the device to which the memory belongs writes and reads it. */
static void fill_at_home(const CUdeviceptr ptrs[static N_BLOCKS], uint32_t value)
{
	for (uint32_t i = 0; i < N_BLOCKS; i++) {
		devices_fill_and_wait(0, ptrs[i], value + i);
		app_say("wrong words", "block %u: %u", i, devices_count_wrong(0, ptrs[i], value + i));
	}
}

/* A kernel of the other device writes, and both devices read it. */
static void fill_from_there(const CUdeviceptr ptrs[static N_BLOCKS], uint32_t value)
{
	for (uint32_t i = 0; i < N_BLOCKS; i++) {
		devices_fill_and_wait(1, ptrs[i], value + i);
		app_say("wrong words", "block %u: %u here, %u there", i, devices_count_wrong(0, ptrs[i], value + i),
			devices_count_wrong(1, ptrs[i], value + i));
	}
}

static void open_before(CUmemoryPool pool)
{
	CUdeviceptr ptrs[N_BLOCKS];

	set_access(pool, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	for (uint32_t round = 0; round < 3; round++) {
		take_all(pool, ptrs);
		fill_from_there(ptrs, 10 * round);
		give_all(ptrs);
	}
}

/* Blocks from before, also those that are allocated again after a free, and blocks from after. */
static void open_after(CUmemoryPool pool)
{
	CUdeviceptr before[N_BLOCKS], after[N_BLOCKS];

	take_all(pool, before);
	fill_at_home(before, 10);
	give_all(before);
	take_all(pool, before);
	set_access(pool, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	fill_from_there(before, 20);
	take_all(pool, after);
	fill_from_there(after, 30);
	give_all(before);
	take_all(pool, before);
	fill_from_there(before, 40);
	give_all(before);
	give_all(after);
}

/* The device itself may go on with memory that is closed to the other one again. */
static void open_and_close(CUmemoryPool pool)
{
	CUdeviceptr ptrs[N_BLOCKS];

	set_access(pool, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	take_all(pool, ptrs);
	fill_from_there(ptrs, 10);
	set_access(pool, CU_MEM_ACCESS_FLAGS_PROT_NONE);
	fill_at_home(ptrs, 20);
	give_all(ptrs);
	take_all(pool, ptrs);
	set_access(pool, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	fill_from_there(ptrs, 30);
	give_all(ptrs);
}

/* Copies on a stream of the other device between the memory, the host and memory of its own. */
static void copy_each_way(CUdeviceptr ptr, CUdeviceptr own)
{
	static uint32_t words[WORDS];
	CUcontext here = devices[0].ctx, there = devices[1].ctx;
	CUstream stream = devices[1].stream;

	devices_fill_and_wait(0, ptr, 3);
	for (int i = 0; i < WORDS; i++)
		words[i] = 3;
	devices_fill_and_wait(1, own, 3);
	app_result("to the host", cuMemcpyDtoHAsync_v2(words, ptr, sizeof(words), stream));
	app_result("from the host", cuMemcpyHtoDAsync_v2(ptr, words, sizeof(words), stream));
	app_result("to its own", cuMemcpyDtoDAsync_v2(own, ptr, sizeof(words), stream));
	app_result("from its own", cuMemcpyDtoDAsync_v2(ptr, own, sizeof(words), stream));
	app_result("to its own, any kind", cuMemcpyAsync(own, ptr, sizeof(words), stream));
	app_result("to its own, peer", cuMemcpyPeerAsync(own, there, ptr, here, sizeof(words), stream));
	app_result("from its own, peer", cuMemcpyPeerAsync(ptr, here, own, there, sizeof(words), stream));
	app_result("synchronise", cuStreamSynchronize(stream));
	app_say("wrong words", "%u here, %u there, word of the host %u", devices_count_wrong(0, ptr, 3),
		devices_count_wrong(1, own, 3), words[WORDS - 1]);
}

/* Copies of memory of a pool that is not opened, and then of the opened one. */
static void copies(CUmemoryPool pool)
{
	CUdeviceptr ptrs[N_BLOCKS], own;

	take_all(pool, ptrs);
	devices_enter(1);
	own = app_alloc(MIB);
	copy_each_way(ptrs[2], own);
	set_access(pool, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	copy_each_way(ptrs[2], own);
	fill_from_there(ptrs, 10);
	give_all(ptrs);
}

static void default_copies(void)
{
	if (devices_start_peers())
		copies(default_pool());
}

static void made_copies(void)
{
	if (devices_start_peers())
		copies(new_pool());
}

static void default_open_before(void)
{
	if (devices_start_peers())
		open_before(default_pool());
}

static void default_open_after(void)
{
	if (devices_start_peers())
		open_after(default_pool());
}

static void default_open_and_close(void)
{
	if (devices_start_peers())
		open_and_close(default_pool());
}

static void made_open_before(void)
{
	if (devices_start_peers())
		open_before(new_pool());
}

static void made_open_after(void)
{
	if (devices_start_peers())
		open_after(new_pool());
}

static void made_open_and_close(void)
{
	if (devices_start_peers())
		open_and_close(new_pool());
}

/* One of two pools is opened. Memory that the other one has freed may become memory of the first. */
static void one_of_two(void)
{
	CUmemoryPool opened, other;
	CUdeviceptr ptrs[N_BLOCKS], others[N_BLOCKS];

	if (!devices_start_peers())
		return;
	opened = new_pool();
	other = new_pool();
	take_all(other, others);
	fill_at_home(others, 10);
	give_all(others);
	take_all(opened, ptrs);
	set_access(opened, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	take_all(other, others);
	fill_from_there(ptrs, 20);
	fill_at_home(others, 30);
	give_all(ptrs);
	give_all(others);
	take_all(opened, ptrs);
	fill_from_there(ptrs, 40);
	give_all(ptrs);
	app_result("destroy", cuMemPoolDestroy(other));
	app_result("destroy", cuMemPoolDestroy(opened));
}

/* Pools of both devices, each opened to the other device. */
static void each_way(void)
{
	const CUmemPoolProps properties = {
		.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = {CU_MEM_LOCATION_TYPE_DEVICE, 1},
	};
	const CUmemAccessDesc access = {
		.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	CUmemoryPool here, there = NULL;
	CUdeviceptr ptrs[N_BLOCKS], far;

	if (!devices_start_peers())
		return;
	here = new_pool();
	APP_MUST(cuMemPoolCreate(&there, &properties));
	take_all(here, ptrs);
	devices_enter(1);
	APP_MUST(cuMemAllocFromPoolAsync(&far, MIB, there, devices[1].stream));
	APP_MUST(cuStreamSynchronize(devices[1].stream));
	set_access(here, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	app_result("access", cuMemPoolSetAccess(there, &access, 1));
	fill_from_there(ptrs, 10);
	devices_fill_and_wait(0, far, 50);
	app_result("wrong words", (int)devices_count_wrong(1, far, 50));
	give_all(ptrs);
	devices_enter(1);
	APP_MUST(cuMemFreeAsync(far, devices[1].stream));
	APP_MUST(cuStreamSynchronize(devices[1].stream));
}

/* Memory of a context that the program has created is opened, too, and stays so when that context ends. */
static void in_created(CUmemoryPool pool)
{
	CUdeviceptr of_primary[N_BLOCKS], of_created[N_BLOCKS];

	take_all(pool, of_primary);
	devices_create(0);
	devices_create(1);
	take_all(pool, of_created);
	set_access(pool, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	fill_from_there(of_primary, 10);
	fill_from_there(of_created, 20);
	app_result("destroy", cuCtxDestroy_v2(devices[0].ctx));
	devices_start_one(0);
	fill_from_there(of_created, 30);
	give_all(of_created);
	give_all(of_primary);
}

/* An allocation on a stream of the other device comes from that device, although its context is not current. */
static void far_stream(void)
{
	CUdeviceptr ptrs[N_BLOCKS];
	int ordinal = -1;

	if (!devices_start_peers())
		return;
	for (uint32_t round = 0; round < 8; round++) {
		devices_enter(0);
		for (int i = 0; i < N_BLOCKS; i++)
			APP_MUST(cuMemAllocAsync(&ptrs[i], bytes_of[i], devices[1].stream));
		app_result("ordinal", cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, ptrs[0]));
		app_say("ordinal", "%d", ordinal);
		for (uint32_t i = 0; i < N_BLOCKS; i++) {
			devices_fill_and_wait(1, ptrs[i], 10 * round + i);
			app_say("wrong words", "%u", devices_count_wrong(1, ptrs[i], 10 * round + i));
		}
		devices_enter(0);
		for (int i = 0; i < N_BLOCKS; i++)
			APP_MUST(cuMemFreeAsync(ptrs[i], devices[1].stream));
	}
	devices_enter(1);
	APP_MUST(cuStreamSynchronize(devices[1].stream));
}

/* The other device has no context when it gets access. */
static void open_to_idle(void)
{
	CUdeviceptr ptrs[N_BLOCKS];

	if (!devices_start_peers())
		return;
	take_all(default_pool(), ptrs);
	fill_at_home(ptrs, 10);
	app_result("release", cuDevicePrimaryCtxRelease_v2(1));
	devices_enter(0);
	set_access(default_pool(), CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	devices_start_one(1);
	fill_from_there(ptrs, 20);
	give_all(ptrs);
}

static void default_in_created(void)
{
	if (devices_start_peers())
		in_created(default_pool());
}

static void made_in_created(void)
{
	if (devices_start_peers())
		in_created(new_pool());
}

const struct app_scenario app_scenarios[] = {
	{"default-open-before", default_open_before, 0},
	{"default-open-after", default_open_after, 0},
	{"default-open-and-close", default_open_and_close, 0},
	{"made-open-before", made_open_before, 0},
	{"made-open-after", made_open_after, 0},
	{"made-open-and-close", made_open_and_close, 0},
	{"default-copies", default_copies, 0},
	{"made-copies", made_copies, 0},
	{"one-of-two", one_of_two, 0},
	{"each-way", each_way, 0},
	{"open-to-idle", open_to_idle, 0},
	{"far-stream", far_stream, 0},
	{"default-in-created", default_in_created, 0},
	{"made-in-created", made_in_created, 0},
	{0},
};
