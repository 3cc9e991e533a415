/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Device memory: outputs after unusual arguments, alignment, pitches, and the contents of blocks. */

#include "tests/preload/app_driver.h"
#include "tests/sim/abi.h"

/* The value of outputs before a call, which a call that fails must not change. */
#define UNTOUCHED 0x5a5a

static struct {
	CUdeviceptr ptr;
	void *host;
	size_t pitch;
} out;

/* Prints a result and the outputs of a call. Frees the memory that the call returned. */
static void report(const char *call, int result)
{
	if (result || !*call) {
		printf("%s: %d, left %llx %p %zx\n", call, result, (unsigned long long)out.ptr, out.host, out.pitch);
	} else {
		printf("%s: 0, changed %d %d, pitch %zx\n", call, out.ptr != UNTOUCHED, out.host != (void *)UNTOUCHED,
			out.pitch);
		if (out.ptr && out.ptr != UNTOUCHED)
			APP_MUST(cuMemFree_v2(out.ptr));
		if (out.host && out.host != (void *)UNTOUCHED)
			APP_MUST(cuMemFreeHost(out.host));
	}
	out.ptr = out.pitch = UNTOUCHED;
	out.host = (void *)UNTOUCHED;
}

#define REPORT(call) report(#call, call)

static void unusual_device(void)
{
	app_start();
	report("", 0);
	REPORT(cuMemAlloc_v2(&out.ptr, 0));
	REPORT(cuMemAlloc_v2(NULL, 0));
	REPORT(cuMemAlloc_v2(NULL, 64));
	REPORT(cuMemAlloc_v2(&out.ptr, 1));
	REPORT(cuMemAllocManaged(&out.ptr, 0, 1));
	REPORT(cuMemAllocManaged(&out.ptr, 64, 0));
	REPORT(cuMemAllocManaged(&out.ptr, 64, 8));
	REPORT(cuMemAllocManaged(NULL, 64, 1));
	REPORT(cuMemAllocManaged(&out.ptr, 64, 1));
	REPORT(cuMemAllocAsync(&out.ptr, 0, NULL));
	REPORT(cuMemAllocAsync(NULL, 64, NULL));
	REPORT(cuMemAllocPitch_v2(&out.ptr, &out.pitch, 0, 4, 4));
	REPORT(cuMemAllocPitch_v2(&out.ptr, &out.pitch, 4, 0, 4));
	REPORT(cuMemAllocPitch_v2(&out.ptr, &out.pitch, 4, 4, 0));
	REPORT(cuMemAllocPitch_v2(&out.ptr, &out.pitch, 4, 4, 3));
	REPORT(cuMemAllocPitch_v2(&out.ptr, &out.pitch, 4, 4, 32));
	REPORT(cuMemAllocPitch_v2(NULL, &out.pitch, 4, 4, 4));
	REPORT(cuMemAllocPitch_v2(&out.ptr, NULL, 4, 4, 4));
	REPORT(cuMemAllocPitch_v2(NULL, NULL, 4, 4, 4));
	REPORT(cuMemAllocPitch_v2(&out.ptr, &out.pitch, 4, 4, 4));
	REPORT(cuMemGetInfo_v2(NULL, NULL));
}

static void unusual_host(void)
{
	app_start();
	report("", 0);
	REPORT(cuMemHostAlloc(&out.host, 0, 0));
	REPORT(cuMemHostAlloc(NULL, 0, 0));
	REPORT(cuMemHostAlloc(NULL, 64, 0));
	REPORT(cuMemHostAlloc(&out.host, 64, 0x80));
	REPORT(cuMemHostAlloc(&out.host, 64, 0xffffffff));
	REPORT(cuMemHostAlloc(&out.host, 1, 0));
	REPORT(cuMemAllocHost_v2(&out.host, 0));
	REPORT(cuMemAllocHost_v2(NULL, 64));
	REPORT(cuMemAllocHost_v2(&out.host, 1));
	REPORT(cuMemHostAlloc(&out.host, 1, CU_MEMHOSTALLOC_WRITECOMBINED));
}

/* Sizes larger than the device, and sizes that overflow when they are rounded up. */
static void huge(void)
{
	static const size_t sizes[] = {(size_t)1 << 43, (size_t)1 << 46, (size_t)1 << 56, SIZE_MAX / 2, SIZE_MAX - 4096,
		SIZE_MAX - 600, SIZE_MAX - 511, SIZE_MAX - 1, SIZE_MAX};
	char name[64];

	app_start();
	report("", 0);
	for (size_t i = 0; i < LENGTH(sizes); i++) {
		snprintf(name, sizeof(name), "cuMemAlloc of %zx", sizes[i]);
		report(name, cuMemAlloc_v2(&out.ptr, sizes[i]));
		snprintf(name, sizeof(name), "cuMemAllocManaged of %zx", sizes[i]);
		report(name, cuMemAllocManaged(&out.ptr, sizes[i], 1));
		snprintf(name, sizeof(name), "cuMemHostAlloc of %zx", sizes[i]);
		report(name, cuMemHostAlloc(&out.host, sizes[i], 0));
		snprintf(name, sizeof(name), "a pitch of %zx", sizes[i]);
		report(name, cuMemAllocPitch_v2(&out.ptr, &out.pitch, sizes[i], 1, 4));
	}
	REPORT(cuMemAllocPitch_v2(&out.ptr, &out.pitch, 1, (size_t)1 << 56, 4));
	REPORT(cuMemAllocPitch_v2(&out.ptr, &out.pitch, (size_t)1 << 33, (size_t)1 << 33, 4));
	REPORT(cuMemAllocAsync(&out.ptr, SIZE_MAX / 2, NULL));
	REPORT(cuMemAlloc_v2(&out.ptr, 64));
}

/* Counts the aligned blocks among a few blocks of each size. */
static void alignment(void)
{
	static const size_t sizes[] = {1, 511, 512, 513, 4096, 64 * KIB, MIB, MIB + 1, 5 * MIB, 33 * MIB};
	enum { BLOCKS = 8 };

	app_start();
	for (size_t i = 0; i < LENGTH(sizes); i++) {
		unsigned fine = 0, coarse = 0;
		CUdeviceptr ptr[BLOCKS];

		for (unsigned k = 0; k < BLOCKS; k++) {
			ptr[k] = app_alloc(sizes[i]);
			fine += ptr[k] % 512 == 0;
			coarse += ptr[k] % (2 * MIB) == 0;
		}
		for (unsigned k = 0; k < BLOCKS; k++)
			APP_MUST(cuMemFree_v2(ptr[k]));
		printf("%zu to 512 bytes: %u of %d\n", sizes[i], fine, BLOCKS);
		if (sizes[i] > MIB)
			printf("%zu to 2 MiB: %u of %d\n", sizes[i], coarse, BLOCKS);
	}
}

struct slot {
	CUdeviceptr ptr;
	size_t bytes;
};

static unsigned count_overlaps(const struct slot *slots, size_t n, const struct slot *with)
{
	unsigned overlaps = 0;

	for (size_t i = 0; i < n; i++)
		overlaps += &slots[i] != with && slots[i].ptr && slots[i].ptr < with->ptr + with->bytes &&
			    with->ptr < slots[i].ptr + slots[i].bytes;
	return overlaps;
}

/* Live blocks of all sizes never overlap. */
static void overlap(void)
{
	enum { STEPS = 20000, SLOTS = 400 };
	static struct slot slots[SLOTS];
	unsigned seed = 7, overlaps = 0, allocs = 0, misaligned = 0;

	app_start();
	for (unsigned i = 0; i < STEPS; i++) {
		struct slot *slot = &slots[app_random(&seed) % SLOTS];
		unsigned bits = 1 + app_random(&seed) % 22;

		if (slot->ptr) {
			APP_MUST(cuMemFree_v2(slot->ptr));
			slot->ptr = 0;
			continue;
		}
		slot->bytes = 1 + (app_random(&seed) | app_random(&seed) << 8) % ((size_t)1 << bits);
		slot->ptr = app_alloc(slot->bytes);
		overlaps += count_overlaps(slots, SLOTS, slot);
		misaligned += slot->ptr % 256 != 0;
		allocs++;
	}
	for (size_t i = 0; i < SLOTS; i++)
		if (slots[i].ptr)
			APP_MUST(cuMemFree_v2(slots[i].ptr));
	printf("%u allocations: %u overlaps, %u not aligned\n", allocs, overlaps, misaligned);
}

/* The contents of a new block after memory of the same size was freed. */
static void contents(void)
{
	enum { BLOCKS = 32 };
	CUdeviceptr ptr[BLOCKS];

	app_start();
	for (size_t bytes = 4 * KIB; bytes <= 16 * MIB; bytes *= 64) {
		size_t used = 0;

		for (unsigned round = 0; round < 2; round++) {
			for (unsigned i = 0; i < BLOCKS; i++) {
				ptr[i] = app_alloc(bytes);
				used += app_count_wrong(NULL, ptr[i], 4 * KIB, 0) != 0;
				app_fill(NULL, ptr[i], 4 * KIB, 7);
			}
			for (unsigned i = 0; i < BLOCKS; i++)
				APP_MUST(cuMemFree_v2(ptr[i]));
			APP_MUST(cuCtxSynchronize());
		}
		printf("%zu, some are not zero: %d\n", bytes, used > 0);
	}
}

/* Data that was copied to any part of a block can be read back. */
static void copies(void)
{
	static const size_t sizes[] = {1, 511, 4097, 3 * MIB + 5, 20 * MIB};

	app_start();
	for (size_t i = 0; i < LENGTH(sizes); i++) {
		size_t bytes = sizes[i], half = bytes / 2;
		unsigned char *in = malloc(bytes), *back = malloc(bytes);
		CUdeviceptr a = app_alloc(bytes), b = app_alloc(bytes);

		for (size_t k = 0; k < bytes; k++)
			in[k] = (unsigned char)(k * 31 + 7);
		APP_MUST(cuMemcpyHtoD_v2(a, in, half));
		APP_MUST(cuMemcpyHtoD_v2(a + half, in + half, bytes - half));
		APP_MUST(cuMemcpyDtoD_v2(b, a, bytes));
		APP_MUST(cuMemFree_v2(a));
		APP_MUST(cuMemcpyDtoH_v2(back, b, half));
		APP_MUST(cuMemcpyDtoH_v2(back + half, b + half, bytes - half));
		printf("%zu bytes come back: %d\n", bytes, memcmp(in, back, bytes) == 0);
		APP_MUST(cuMemsetD8_v2(b + bytes - 1, 3, 1));
		APP_MUST(cuMemcpyDtoH_v2(back, b + bytes - 1, 1));
		printf("the last of %zu: %d\n", bytes, back[0]);
		APP_MUST(cuMemFree_v2(b));
		free(in);
		free(back);
	}
}

/* Copies and sets that begin in a block and end after it. */
static void beyond(void)
{
	static const size_t sizes[] = {2 * MIB, 8 * MIB, 64 * MIB};
	static char text[4096];

	app_start();
	for (size_t i = 0; i < LENGTH(sizes); i++) {
		size_t bytes = sizes[i];
		CUdeviceptr ptr = app_alloc(bytes);

		printf("set of %zu and 1 byte: %d\n", bytes, cuMemsetD8_v2(ptr, 1, bytes + 1));
		printf("copy across the end of %zu: %d\n", bytes,
			cuMemcpyHtoD_v2(ptr + bytes - 16, text, sizeof(text)));
		printf("copy from across the end of %zu: %d\n", bytes,
			cuMemcpyDtoH_v2(text, ptr + bytes - 16, sizeof(text)));
		APP_MUST(cuMemFree_v2(ptr));
	}
}

/* Tests every small width, and some of the larger ones, because the driver takes long for each. */
static size_t next_width(size_t width)
{
	return width + (width < 600 ? 1 : 13);
}

/* Prints a hash of all pitches for each element size, and the number of plausible pitches for powers of two. */
static void pitches(void)
{
	static const unsigned elements[] = {4, 8, 16};

	app_start();
	for (size_t i = 0; i < LENGTH(elements); i++) {
		uint64_t hash = UINT64_C(14695981039346656037);
		unsigned seen = 0;

		for (size_t width = 1; width <= 4096; width = next_width(width)) {
			CUdeviceptr ptr;
			size_t pitch = 0;

			APP_MUST(cuMemAllocPitch_v2(&ptr, &pitch, width, 1 + width % 5, elements[i]));
			if (width % 61 == 0)
				APP_MUST(cuMemsetD8_v2(ptr, 1, pitch * (1 + width % 5)));
			APP_MUST(cuMemFree_v2(ptr));
			hash = (hash ^ pitch) * UINT64_C(1099511628211);
			seen += (width & (width - 1)) == 0 && pitch % width == 0;
		}
		printf("elements of %u: %llx, powers of two %u\n", elements[i], (unsigned long long)hash, seen);
	}
}

const struct app_scenario app_scenarios[] = {
	{"unusual-device", unusual_device, APP_TOGETHER},
	{"unusual-host", unusual_host, APP_TOGETHER},
	{"huge", huge, APP_TOGETHER},
	{"alignment", alignment, APP_TOGETHER},
	{"overlap", overlap, APP_TOGETHER},
	{"copies", copies, APP_TOGETHER},
	{"pitches", pitches, APP_TOGETHER},
	{"contents", contents},
	{"beyond", beyond},
	{0},
};
