/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Device and pinned memory: loops, unusual sizes, wrong frees, pitches, and mixed ways to allocate and free. */

#include <errno.h>
#include <unistd.h>

#include "app_driver.h"

enum { SLOTS = 48, STEPS = 3000, CHECKED = 4096 };

/* Returns a size near one of the boundaries of the pools. */
static size_t random_bytes(unsigned *seed)
{
	static const size_t around[] = {1, 512, 4 * KIB, 64 * KIB, MIB, 2 * MIB, 8 * MIB};
	size_t bytes = around[app_random(seed) % LENGTH(around)];

	return app_random(seed) % 2 ? bytes : bytes + app_random(seed) % bytes;
}

struct slot {
	CUdeviceptr ptr;
	size_t bytes;
	unsigned char value;
};

/* Allocates the block and writes its value to its first and last bytes. */
static void put(struct slot *slot)
{
	static unsigned char value;
	size_t n = slot->bytes < CHECKED ? slot->bytes : CHECKED;
	unsigned char text[CHECKED];

	slot->value = ++value;
	memset(text, slot->value, n);
	slot->ptr = app_alloc(slot->bytes);
	if (slot->ptr % 512)
		app_result("not aligned", (int)(slot->ptr % 512));
	APP_MUST(cuMemsetD8_v2(slot->ptr, slot->value, n));
	APP_MUST(cuMemcpyHtoD_v2(slot->ptr + slot->bytes - n, text, n));
}

static size_t wrong_bytes(const struct slot *slot, size_t offset, size_t n)
{
	unsigned char text[CHECKED];
	size_t wrong = 0;

	APP_MUST(cuMemcpyDtoH_v2(text, slot->ptr + offset, n));
	for (size_t i = 0; i < n; i++)
		wrong += text[i] != slot->value;
	return wrong;
}

static size_t take(struct slot *slot)
{
	size_t n = slot->bytes < CHECKED ? slot->bytes : CHECKED;
	size_t wrong = wrong_bytes(slot, 0, n) + wrong_bytes(slot, slot->bytes - n, n);

	APP_MUST(cuMemFree_v2(slot->ptr));
	slot->ptr = 0;
	return wrong;
}

static void loop(void)
{
	struct slot slots[SLOTS] = {0};
	unsigned seed = 1, allocs = 0;
	size_t wrong = 0;

	app_start();
	for (unsigned i = 0; i < STEPS; i++) {
		struct slot *slot = &slots[app_random(&seed) % SLOTS];

		if (slot->ptr) {
			wrong += take(slot);
			continue;
		}
		slot->bytes = random_bytes(&seed);
		put(slot);
		allocs++;
	}
	printf("allocs %u, wrong bytes %zu\n", allocs, wrong);
	app_fact("allocs", allocs);
	app_fact("pid", (uint64_t)getpid());
	app_pause("loop");
	app_report_driver();
}

static void frees(void)
{
	CUdeviceptr small, large, neighbour;
	int on_stack = 0;

	app_start();
	small = app_alloc(1000);
	neighbour = app_alloc(1000);
	large = app_alloc(3 * MIB);
	app_result("free of NULL", cuMemFree_v2(0));
	app_result("free of 1", cuMemFree_v2(1));
	app_result("free of the stack", cuMemFree_v2((CUdeviceptr)(uintptr_t)&on_stack));
	app_result("free inside a small block", cuMemFree_v2(small + 256));
	app_result("free inside a large block", cuMemFree_v2(large + MIB));
	app_result("free at an odd address", cuMemFree_v2(large + 1));
	app_result("free as pinned", cuMemFreeHost((void *)(uintptr_t)large));
	app_result("free of the small block", cuMemFree_v2(small));
	app_result("free of the small block again", cuMemFree_v2(small));
	app_result("free of the large block", cuMemFree_v2(large));
	app_result("free of the large block again", cuMemFree_v2(large));
	app_result("free inside a freed block", cuMemFree_v2(large + MIB));
	app_fill(NULL, neighbour, 1000, 7);
	app_result("wrong words in the neighbour", (int)app_count_wrong(NULL, neighbour, 1000, 7));
	app_result("free of the neighbour", cuMemFree_v2(neighbour));
	app_pause("frees");
}

static void pinned_frees(void)
{
	void *ptr, *heap = malloc(64);

	app_start();
	APP_MUST(cuMemHostAlloc(&ptr, 3 * MIB, 0));
	app_result("free of NULL", cuMemFreeHost(NULL));
	app_result("free of heap memory", cuMemFreeHost(heap));
	app_result("free inside the block", cuMemFreeHost((char *)ptr + MIB));
	app_result("free as device memory", cuMemFree_v2((CUdeviceptr)(uintptr_t)ptr));
	app_result("free", cuMemFreeHost(ptr));
	app_result("free again", cuMemFreeHost(ptr));
	free(heap);
}

/* A value that a failing call must not change. */
#define UNTOUCHED 0x5a5a

static struct {
	CUdeviceptr ptr;
	void *host;
	size_t pitch;
} zero;

/* Prints a result, and what the call has stored. */
static void print_call(const char *call, int result)
{
	printf("%s: %d, left %llx %p %zx\n", call, result, (unsigned long long)zero.ptr, zero.host, zero.pitch);
	zero.ptr = zero.pitch = UNTOUCHED;
	zero.host = (void *)UNTOUCHED;
}

static void zeros(void)
{
	app_start();
	print_call("start", 0);
#define CHECK(call) print_call(#call, call)
	CHECK(cuMemAlloc_v2(&zero.ptr, 0));
	CHECK(cuMemAlloc_v2(NULL, 64));
	CHECK(cuMemAlloc_v2(&zero.ptr, SIZE_MAX));
	CHECK(cuMemAlloc_v2(&zero.ptr, SIZE_MAX / 2));
	CHECK(cuMemAllocManaged(&zero.ptr, 0, 1));
	CHECK(cuMemAllocManaged(&zero.ptr, SIZE_MAX / 2, 1));
	CHECK(cuMemAllocManaged(NULL, 64, 1));
	CHECK(cuMemAllocAsync(&zero.ptr, SIZE_MAX / 2, NULL));
	CHECK(cuMemAllocAsync(NULL, 64, NULL));
	CHECK(cuMemAllocPitch_v2(&zero.ptr, &zero.pitch, 0, 4, 4));
	CHECK(cuMemAllocPitch_v2(&zero.ptr, &zero.pitch, 4, 0, 4));
	CHECK(cuMemAllocPitch_v2(&zero.ptr, &zero.pitch, 4, 4, 3));
	CHECK(cuMemAllocPitch_v2(&zero.ptr, &zero.pitch, SIZE_MAX / 4, 1, 4));
	CHECK(cuMemAllocPitch_v2(&zero.ptr, &zero.pitch, 1, (size_t)1 << 56, 4));
	CHECK(cuMemAllocPitch_v2(NULL, &zero.pitch, 4, 4, 4));
	CHECK(cuMemAllocPitch_v2(&zero.ptr, NULL, 4, 4, 4));
	CHECK(cuMemHostAlloc(&zero.host, 0, 0));
	CHECK(cuMemHostAlloc(&zero.host, SIZE_MAX / 2, 0));
	CHECK(cuMemHostAlloc(NULL, 64, 0));
	CHECK(cuMemHostAlloc(&zero.host, 64, 0x80));
	CHECK(cuMemAllocHost_v2(&zero.host, 0));
	CHECK(cuMemAllocHost_v2(NULL, 64));
	CHECK(cuMemGetInfo_v2(NULL, NULL));
#undef CHECK
}

/* Calls before the program has a context, and after it has left the context. */
static void no_context(void)
{
	CUdeviceptr ptr = UNTOUCHED, kept;
	void *host = (void *)UNTOUCHED;
	size_t free_bytes, total_bytes;

	app_result("cuMemAlloc before cuInit", cuMemAlloc_v2(&ptr, 64));
	app_result("cuMemFree before cuInit", cuMemFree_v2(64));
	APP_MUST(cuInit(0));
	app_result("cuMemAlloc without a context", cuMemAlloc_v2(&ptr, 64));
	app_result("cuMemHostAlloc without a context", cuMemHostAlloc(&host, 64, 0));
	app_result("cuMemGetInfo without a context", cuMemGetInfo_v2(&free_bytes, &total_bytes));
	app_start();
	kept = app_alloc(64);
	APP_MUST(cuMemFree_v2(app_alloc(64)));
	APP_MUST(cuCtxSetCurrent(NULL));
	app_result("cuMemAlloc with a full cache and no context", cuMemAlloc_v2(&ptr, 64));
	app_result("cuMemFree without a context", cuMemFree_v2(kept));
	printf("left alone: %d %d\n", ptr == UNTOUCHED, host == (void *)UNTOUCHED);
}

/* Combines each way to allocate with each way to free, several times. */
static void mixed(void)
{
	CUdeviceptr ptr;
	CUstream stream;

	app_start();
	stream = app_stream();
	for (unsigned i = 0; i < 8; i++) {
		ptr = app_alloc(MIB);
		app_spin_fill(stream, ptr, 64 * KIB, i, 50000);
		app_result("cuMemFreeAsync of cuMemAlloc", cuMemFreeAsync(ptr, stream));
		ptr = app_alloc(MIB);
		app_fill(NULL, ptr, 64 * KIB, i);
		app_result("wrong words", (int)app_count_wrong(NULL, ptr, 64 * KIB, i));
		app_result("cuMemFree of cuMemAlloc", cuMemFree_v2(ptr));
		APP_MUST(cuMemAllocAsync(&ptr, MIB, stream));
		APP_MUST(cuStreamSynchronize(stream));
		app_result("cuMemFree of cuMemAllocAsync", cuMemFree_v2(ptr));
		APP_MUST(cuMemAllocAsync(&ptr, MIB, stream));
		app_result("cuMemFreeAsync of cuMemAllocAsync", cuMemFreeAsync(ptr, stream));
		APP_MUST(cuMemAllocManaged(&ptr, MIB, 1));
		app_result("cuMemFree of cuMemAllocManaged", cuMemFree_v2(ptr));
	}
	ptr = app_alloc(MIB);
	app_result("cuMemFreeAsync", cuMemFreeAsync(ptr, stream));
	app_result("cuMemFree after cuMemFreeAsync", cuMemFree_v2(ptr));
	APP_MUST(cuCtxSynchronize());
	app_report_driver();
}

static void pitch(void)
{
	static const size_t widths[] = {1, 4, 511, 512, 513, 1000, 4096, 5000};

	app_start();
	for (unsigned round = 0; round < 2; round++) {
		for (size_t i = 0; i < LENGTH(widths); i++) {
			size_t bytes = 0;
			CUdeviceptr ptr;

			APP_MUST(cuMemAllocPitch_v2(&ptr, &bytes, widths[i], 33, 4));
			printf("width %zu: pitch %zu, aligned %d\n", widths[i], bytes, ptr % 512 == 0);
			app_fill(NULL, ptr, bytes * 33, 5);
			app_result("wrong words", (int)app_count_wrong(NULL, ptr, bytes * 33, 5));
			APP_MUST(cuMemFree_v2(ptr));
		}
	}
	app_fact_calls("cuMemAllocPitch_v2");
}

/* Allocates with every set of flags. The flags that the driver reports must be right for a reused block, too. */
static void pinned(void)
{
	CUdeviceptr device;

	app_start();
	device = app_alloc(64 * KIB);
	for (unsigned i = 0; i < 40; i++) {
		unsigned flags = i % 8, seen = 0;
		uint32_t *words;

		APP_MUST(cuMemHostAlloc((void **)&words, 64 * KIB + i, flags));
		app_result("flags of cuMemHostAlloc", cuMemHostGetFlags(&seen, words));
		printf("requested flags %u, reported flags %u\n", flags, seen);
		words[0] = i;
		APP_MUST(cuMemcpyHtoD_v2(device, words, 64 * KIB));
		words[0] = 0;
		APP_MUST(cuMemcpyDtoH_v2(words, device, 64 * KIB));
		app_result("word after the copies", (int)words[0]);
		APP_MUST(cuMemFreeHost(words));
		APP_MUST(cuMemAllocHost_v2((void **)&words, 64 * KIB));
		APP_MUST(cuMemHostGetFlags(&seen, words));
		app_result("flags of cuMemAllocHost", (int)seen);
		APP_MUST(cuMemFreeHost(words));
	}
	app_report_driver();
}

/* Without the library these calls would leave errno alone, so they must do so with it. */
static void keep_errno(void)
{
	CUdeviceptr ptr;
	void *host;

	app_start();
	errno = 77;
	APP_MUST(cuMemAlloc_v2(&ptr, MIB));
	APP_MUST(cuMemFree_v2(ptr));
	cuMemAlloc_v2(&ptr, SIZE_MAX / 2);
	APP_MUST(cuMemHostAlloc(&host, MIB, 0));
	APP_MUST(cuMemFreeHost(host));
	app_fact("errno", (uint64_t)errno);
	printf("done\n");
}

const struct app_scenario app_scenarios[] = {
	{"loop", loop},
	{"frees", frees},
	{"pinned-frees", pinned_frees},
	{"zeros", zeros},
	{"no-context", no_context},
	{"mixed", mixed},
	{"pitch", pitch},
	{"pinned", pinned},
	{"errno", keep_errno},
	{0},
};
