/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Queries about memory: ranges, attributes and ids, while a block lives, after its free, and when it is reused. */

#include "tests/preload/app_driver.h"
#include "tests/sim/abi.h"

static const size_t sizes[] = {1, 512, 5000, 64 * KIB, MIB, MIB + 1, 20 * MIB, 100 * MIB};

/* Prints the properties of the range around an address that the driver promises. */
static void report_range(const char *name, CUdeviceptr at, CUdeviceptr block, size_t bytes)
{
	CUdeviceptr base = 0;
	size_t size = 0;
	CUresult r = cuMemGetAddressRange_v2(&base, &size, at);

	printf("%s of %zu: %d, base %d, holds %d, not 2 MiB more %d\n", name, bytes, r, base == block, size >= bytes,
		size < bytes + 2 * MIB);
}

static void ranges(void)
{
	CUdeviceptr ptr[LENGTH(sizes)];

	app_start();
	for (unsigned round = 0; round < 3; round++) {
		for (size_t i = 0; i < LENGTH(sizes); i++)
			ptr[i] = app_alloc(sizes[i]);
		for (size_t i = 0; i < LENGTH(sizes); i++) {
			size_t bytes = sizes[i];
			CUdeviceptr base = 0;
			size_t size = 0;

			report_range("range at 0", ptr[i], ptr[i], bytes);
			report_range("range in the middle", ptr[i] + bytes / 2, ptr[i], bytes);
			report_range("range at the end", ptr[i] + bytes - 1, ptr[i], bytes);
			app_result("base alone", cuMemGetAddressRange_v2(&base, NULL, ptr[i]));
			app_result("size alone", cuMemGetAddressRange_v2(NULL, &size, ptr[i]));
			app_result("neither base nor size", cuMemGetAddressRange_v2(NULL, NULL, ptr[i]));
			printf("each alone: %d %d\n", base == ptr[i], size >= bytes);
		}
		for (size_t i = 0; i < LENGTH(sizes); i++)
			APP_MUST(cuMemFree_v2(ptr[i]));
	}
	app_result("range of NULL", cuMemGetAddressRange_v2(NULL, NULL, 0));
	app_result("range of 64", cuMemGetAddressRange_v2(NULL, NULL, 64));
	app_result("range of the stack", cuMemGetAddressRange_v2(NULL, NULL, (CUdeviceptr)(uintptr_t)ptr));
}

/* Attributes whose values do not depend on the address of the block. */
static const int plain[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_HOST_POINTER,
	CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, CU_POINTER_ATTRIBUTE_IS_MANAGED, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
	CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, CU_POINTER_ATTRIBUTE_MAPPED,
	CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE,
	CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE};

static uint64_t attribute(int which, CUdeviceptr ptr, CUresult *r)
{
	uint64_t value[2] = {0};

	*r = cuPointerGetAttribute(value, which, ptr);
	return value[0];
}

static void report_attributes(const char *name, CUdeviceptr ptr, CUdeviceptr block, size_t bytes)
{
	uint64_t value;
	CUresult r;

	for (size_t i = 0; i < LENGTH(plain); i++) {
		bool is_pointer = plain[i] == CU_POINTER_ATTRIBUTE_HOST_POINTER;

		value = attribute(plain[i], ptr, &r);
		printf("%s, attribute %d: %d %llu\n", name, plain[i], r,
			is_pointer ? (unsigned long long)(value == ptr) : (unsigned long long)value);
	}
	value = attribute(CU_POINTER_ATTRIBUTE_CONTEXT, ptr, &r);
	printf("%s, context: %d %d\n", name, r, value == (uint64_t)(uintptr_t)app_ctx);
	value = attribute(CU_POINTER_ATTRIBUTE_DEVICE_POINTER, ptr, &r);
	printf("%s, device pointer: %d %d\n", name, r, value == ptr);
	value = attribute(CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, ptr, &r);
	printf("%s, range start: %d %d\n", name, r, value == block);
	value = attribute(CU_POINTER_ATTRIBUTE_RANGE_SIZE, ptr, &r);
	printf("%s, range size: %d %d\n", name, r, value >= bytes && value < bytes + 2 * MIB);
	value = attribute(CU_POINTER_ATTRIBUTE_BUFFER_ID, ptr, &r);
	printf("%s, buffer id: %d %d\n", name, r, value != 0);
	value = attribute(999, ptr, &r);
	printf("%s, attribute 999: %d\n", name, r);
}

static void attributes(void)
{
	CUdeviceptr large, small, managed;
	void *host;

	app_start();
	for (unsigned life = 0; life < 2; life++) {
		large = app_alloc(8 * MIB);
		small = app_alloc(512);
		APP_MUST(cuMemAllocManaged(&managed, MIB, 1));
		APP_MUST(cuMemHostAlloc(&host, MIB, 0));
		report_attributes("large", large, large, 8 * MIB);
		report_attributes("inside", large + 4097, large, 8 * MIB);
		report_attributes("small", small, small, 512);
		report_attributes("managed", managed, managed, MIB);
		report_attributes("host", (CUdeviceptr)(uintptr_t)host, (CUdeviceptr)(uintptr_t)host, MIB);
		report_attributes("inside host", (CUdeviceptr)(uintptr_t)host + 100, (CUdeviceptr)(uintptr_t)host, MIB);
		APP_MUST(cuMemFree_v2(large));
		APP_MUST(cuMemFree_v2(small));
		APP_MUST(cuMemFree_v2(managed));
		APP_MUST(cuMemFreeHost(host));
		APP_MUST(cuCtxSynchronize());
	}
	report_attributes("stack", (CUdeviceptr)(uintptr_t)&host, 0, 0);
	report_attributes("no memory", 64, 0, 0);
}

/* Queries about blocks that were freed. The driver promises nothing about the answers. */
static void freed(void)
{
	CUdeviceptr large, small;
	void *host;
	CUresult r;

	app_start();
	large = app_alloc(8 * MIB);
	small = app_alloc(512);
	APP_MUST(cuMemHostAlloc(&host, 3 * MIB, 0));
	APP_MUST(cuMemFree_v2(large));
	APP_MUST(cuMemFree_v2(small));
	APP_MUST(cuMemFreeHost(host));
	APP_MUST(cuCtxSynchronize());
	attribute(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, large, &r);
	app_result("type of a large block", r);
	attribute(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, small, &r);
	app_result("type of a small block", r);
	attribute(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (CUdeviceptr)(uintptr_t)host, &r);
	app_result("type of a pinned block", r);
	app_result("range of a large block", cuMemGetAddressRange_v2(NULL, NULL, large));
	app_result("range of a small block", cuMemGetAddressRange_v2(NULL, NULL, small));
	app_result("set of a large block", cuMemsetD8_v2(large, 1, 8 * MIB));
	app_result("flags of a pinned block", cuMemHostGetFlags(&(unsigned){0}, host));
}

static void batch(void)
{
	int which[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_BUFFER_ID,
		CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, CU_POINTER_ATTRIBUTE_RANGE_SIZE,
		CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_IS_MANAGED};
	unsigned type, managed;
	uint64_t id;
	CUdeviceptr start;
	size_t bytes;
	int ordinal;
	void *into[] = {&type, &id, &start, &bytes, &ordinal, &managed};
	CUdeviceptr ptr;
	CUresult r;

	app_start();
	ptr = app_alloc(3 * MIB);
	for (unsigned i = 0; i < 4; i++) {
		CUdeviceptr at = i < 3 ? ptr + i * MIB : 64;
		uint64_t alone = attribute(CU_POINTER_ATTRIBUTE_BUFFER_ID, at, &r);

		type = managed = 77;
		ordinal = 77;
		id = start = bytes = 0;
		app_result("batch", cuPointerGetAttributes(LENGTH(which), which, into, at));
		printf("batch at %u MiB: type %u, same id %d, start %d, size %d, device %d, managed %u\n", i, type,
			id == alone, start == ptr, bytes >= 3 * MIB, ordinal, managed);
	}
	app_result("batch of zero attributes", cuPointerGetAttributes(0, which, into, ptr));
	app_result("batch without attributes", cuPointerGetAttributes(1, NULL, into, ptr));
	app_result("batch without outputs", cuPointerGetAttributes(1, which, NULL, ptr));
	app_result("attribute without an output", cuPointerGetAttribute(NULL, CU_POINTER_ATTRIBUTE_BUFFER_ID, ptr));
	APP_MUST(cuMemFree_v2(ptr));
}

/* An id belongs to one life of a block: it stays the same during that life, and never repeats. */
static void ids(void)
{
	enum { LIVES = 48 };
	static const size_t bytes[] = {1000, MIB, 8 * MIB};
	unsigned repeated = 0, changed = 0;
	uint64_t seen[LIVES];
	CUresult r;

	app_start();
	for (unsigned i = 0; i < LIVES; i++) {
		CUdeviceptr ptr = app_alloc(bytes[i % LENGTH(bytes)]);

		seen[i] = attribute(CU_POINTER_ATTRIBUTE_BUFFER_ID, ptr, &r);
		changed += seen[i] != attribute(CU_POINTER_ATTRIBUTE_BUFFER_ID, ptr + 999, &r);
		for (unsigned k = 0; k < i; k++)
			repeated += seen[k] == seen[i];
		APP_MUST(cuMemFree_v2(ptr));
		APP_MUST(cuCtxSynchronize());
	}
	printf("ids: repeated %u, changed %u\n", repeated, changed);
}

/* An attribute that was set in one life of a block must not be visible in the next. */
static void sync_memops(void)
{
	static const size_t bytes[] = {512, 2 * MIB, 64 * MIB};
	unsigned before, after;
	CUresult r;

	app_start();
	APP_MUST(cuCtxGetFlags(&before));
	for (unsigned i = 0; i < 3 * LENGTH(bytes); i++) {
		size_t n = bytes[i % LENGTH(bytes)];
		CUdeviceptr ptr = app_alloc(n);

		printf("%zu, of a new block: %llu\n", n,
			(unsigned long long)attribute(CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, ptr, &r));
		printf("%zu, set: %d\n", n,
			cuPointerSetAttribute(&(unsigned){1}, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, ptr));
		printf("%zu, after the set: %llu\n", n,
			(unsigned long long)attribute(CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, ptr, &r));
		APP_MUST(cuMemFree_v2(ptr));
		APP_MUST(cuCtxSynchronize());
	}
	app_result("set a read-only attribute",
		cuPointerSetAttribute(&(unsigned){1}, CU_POINTER_ATTRIBUTE_BUFFER_ID, app_alloc(512)));
	APP_MUST(cuCtxGetFlags(&after));
	app_result("flags of the context that are new", (int)(after & ~before));
}

/* The program may set other flags later, which must not end the effect of the attribute. */
static void sync_memops_and_flags(void)
{
	CUdeviceptr ptr, other;
	unsigned flags = 0;
	CUresult r;

	app_start();
	ptr = app_alloc(MIB);
	other = app_alloc(64 * MIB);
	app_result("set", cuPointerSetAttribute(&(unsigned){1}, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, ptr));
	APP_MUST(cuCtxGetFlags(&flags));
	app_result("set flags", cuCtxSetFlags(flags & ~(unsigned)CU_CTX_SYNC_MEMOPS));
	app_result("after the set of flags", (int)attribute(CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, ptr, &r));
	app_result("set flags of the device", cuDevicePrimaryCtxSetFlags_v2(0, 0));
	app_result("after the set for the device", (int)attribute(CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, ptr, &r));
	app_result("of other memory", (int)attribute(CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, other, &r));
	app_result("take back", cuPointerSetAttribute(&(unsigned){0}, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, other));
	app_result("without a value", cuPointerSetAttribute(NULL, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, other));
}

static bool has_tokens(const uint64_t *tokens)
{
	return tokens[0] || tokens[1];
}

/* Tokens for devices that access memory directly: queried alone and in a batch, for blocks of all sizes. */
static void tokens(void)
{
	static const size_t bytes[] = {512, 3 * MIB, 64 * MIB};
	int which[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_P2P_TOKENS};

	app_start();
	for (unsigned i = 0; i < 3 * LENGTH(bytes); i++) {
		size_t n = bytes[i % LENGTH(bytes)];
		CUdeviceptr ptr = app_alloc(n), beside = app_alloc(n);
		uint64_t alone[2] = {0}, together[2] = {0};
		unsigned type = 0;
		CUresult r = cuPointerGetAttribute(alone, CU_POINTER_ATTRIBUTE_P2P_TOKENS, ptr);

		printf("%zu, tokens: %d %d\n", n, r, has_tokens(alone));
		r = cuPointerGetAttributes(LENGTH(which), which, (void *[]){&type, together}, beside);
		printf("%zu, tokens in a batch: %d %u %d\n", n, r, type, has_tokens(together));
		APP_MUST(cuMemFree_v2(ptr));
		APP_MUST(cuMemFree_v2(beside));
		APP_MUST(cuCtxSynchronize());
	}
}

const struct app_scenario app_scenarios[] = {
	{"ranges", ranges, APP_TOGETHER},
	{"attributes", attributes, APP_TOGETHER},
	{"batch", batch, APP_TOGETHER},
	{"ids", ids, APP_TOGETHER},
	{"sync-memops", sync_memops},
	{"sync-memops-and-flags", sync_memops_and_flags},
	{"tokens", tokens},
	{"freed", freed},
	{0},
};
