/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * The driver's half of semantics.cu, for programs that open the driver themselves. Built without
 * the toolkit: prototypes come from shim/cuda_abi.h, functions from dlsym.
 */

#include <dlfcn.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shim/cuda_abi.h"

#define MIB ((size_t)1 << 20)

/* One row per function that is called: its name and its parameters. */
#define FUNCTIONS(FUNCTION)                                                                        \
	FUNCTION(cuInit, (unsigned flags))                                                         \
	FUNCTION(cuDeviceGet, (CUdevice * device, int ordinal))                                    \
	FUNCTION(cuDevicePrimaryCtxRetain, (CUcontext * ctx, CUdevice device))                     \
	FUNCTION(cuDevicePrimaryCtxRelease_v2, (CUdevice device))                                  \
	FUNCTION(cuDevicePrimaryCtxReset_v2, (CUdevice device))                                    \
	FUNCTION(cuCtxCreate_v2, (CUcontext * ctx, unsigned flags, CUdevice device))               \
	FUNCTION(cuCtxDestroy_v2, (CUcontext ctx))                                                 \
	FUNCTION(cuCtxSetCurrent, (CUcontext ctx))                                                 \
	FUNCTION(cuCtxGetCurrent, (CUcontext * ctx))                                               \
	FUNCTION(cuCtxSynchronize, (void))                                                         \
	FUNCTION(cuGetProcAddress_v2,                                                              \
		(const char *name, void **fn, int version, uint64_t flags, int *status))           \
	FUNCTION(cuMemAlloc_v2, (CUdeviceptr * ptr, size_t bytes))                                 \
	FUNCTION(cuMemAllocPitch_v2, (CUdeviceptr * ptr, size_t * pitch, size_t width,             \
					     size_t height, unsigned element_bytes))               \
	FUNCTION(cuMemFree_v2, (CUdeviceptr ptr))                                                  \
	FUNCTION(cuMemFreeAsync, (CUdeviceptr ptr, CUstream stream))                               \
	FUNCTION(cuMemAllocHost_v2, (void **ptr, size_t bytes))                                    \
	FUNCTION(cuMemHostAlloc, (void **ptr, size_t bytes, unsigned flags))                       \
	FUNCTION(cuMemFreeHost, (void *ptr))                                                       \
	FUNCTION(cuMemHostGetFlags, (unsigned *flags, void *ptr))                                  \
	FUNCTION(cuMemGetInfo_v2, (size_t * free_bytes, size_t * total_bytes))                     \
	FUNCTION(cuMemGetAddressRange_v2, (CUdeviceptr * base, size_t * bytes, CUdeviceptr ptr))   \
	FUNCTION(cuMemsetD8_v2, (CUdeviceptr ptr, unsigned char value, size_t n))                  \
	FUNCTION(cuPointerGetAttribute, (void *data, int attribute, CUdeviceptr ptr))              \
	FUNCTION(cuPointerGetAttributes,                                                           \
		(unsigned n, int *attributes, void **data, CUdeviceptr ptr))                       \
	FUNCTION(cuPointerSetAttribute, (const void *value, int attribute, CUdeviceptr ptr))

#define FUNCTION(name, parameters) static CUresult(*name) parameters;
FUNCTIONS(FUNCTION)
#undef FUNCTION

static void say(const char *name, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void say(const char *name, const char *format, ...)
{
	va_list args;

	printf("%s: ", name);
	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	putchar('\n');
	fflush(stdout);
}

static void check(CUresult r, const char *what)
{
	if (r == CUDA_SUCCESS)
		return;
	fprintf(stderr, "%s: error %d\n", what, r);
	fflush(stdout);
	_Exit(1);
}

#define CHECK(call) check((call), #call)

static CUdeviceptr take(size_t bytes)
{
	CUdeviceptr p = 0;

	CHECK(cuMemAlloc_v2(&p, bytes));
	return p;
}

static bool load(void)
{
	void *driver = dlopen("libcuda.so.1", RTLD_NOW);
	bool is_complete = driver;

#define FUNCTION(name, parameters)                                                                 \
	*(void **)&name = driver ? dlsym(driver, #name) : NULL;                                    \
	is_complete = is_complete && name;
	FUNCTIONS(FUNCTION)
#undef FUNCTION
	return is_complete;
}

/* Whoever asks in whichever way gets the same function. */
static void ways_in(void)
{
	static const struct {
		const char *name;
		int version;
		void *fn;
	} rows[] = {
		{"cuMemAlloc", 3020, &cuMemAlloc_v2},
		{"cuMemFree", 3020, &cuMemFree_v2},
		{"cuMemFreeAsync", 11020, &cuMemFreeAsync},
		{"cuMemHostAlloc", 2020, &cuMemHostAlloc},
		{"cuMemFreeHost", 2000, &cuMemFreeHost},
		{"cuMemGetInfo", 3020, &cuMemGetInfo_v2},
		{"cuCtxDestroy", 4000, &cuCtxDestroy_v2},
		{"cuGetProcAddress", 12000, &cuGetProcAddress_v2},
	};
	char name[64];

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		void *fn = NULL;
		int status = -1;
		CUresult r = cuGetProcAddress_v2(rows[i].name, &fn, rows[i].version, 0, &status);

		snprintf(name, sizeof(name), "ways.%s", rows[i].name);
		say(name, "%d status=%d same=%d", r, status, fn == *(void **)rows[i].fn);
	}
}

static void odd_arguments(void)
{
	CUdeviceptr p = 77;
	void *h = &p;
	size_t pitch = 77;

	say("odd.alloc_zero", "%d untouched=%d", cuMemAlloc_v2(&p, 0), p == 77);
	say("odd.alloc_null", "%d", cuMemAlloc_v2(NULL, 64));
	say("odd.alloc_big", "%d", cuMemAlloc_v2(&p, SIZE_MAX));
	say("odd.free_zero", "%d", cuMemFree_v2(0));
	say("odd.free_foreign", "%d", cuMemFree_v2((CUdeviceptr)(uintptr_t)&p));
	say("odd.host_zero", "%d", cuMemAllocHost_v2(&h, 0));
	say("odd.host_null", "%d", cuMemAllocHost_v2(NULL, 64));
	say("odd.hostalloc_zero", "%d", cuMemHostAlloc(&h, 0, 0));
	say("odd.hostalloc_flags", "%d", cuMemHostAlloc(&h, 64, 0x100));
	say("odd.freehost_null", "%d", cuMemFreeHost(NULL));
	say("odd.freehost_stack", "%d", cuMemFreeHost(&h));
	say("odd.pitch_element", "%d", cuMemAllocPitch_v2(&p, &pitch, 64, 4, 3));
	say("odd.pitch_zero", "%d", cuMemAllocPitch_v2(&p, &pitch, 0, 4, 4));
	say("odd.pitch_null", "%d", cuMemAllocPitch_v2(NULL, &pitch, 64, 4, 4));
	say("odd.info_null", "%d", cuMemGetInfo_v2(NULL, NULL));
	say("odd.range_null", "%d",
		cuMemGetAddressRange_v2(NULL, NULL, (CUdeviceptr)(uintptr_t)&p));
}

static void pitches(void)
{
	static const unsigned elements[] = {4, 8, 16};
	char name[64];

	for (size_t i = 0; i < sizeof(elements) / sizeof(elements[0]); i++) {
		uint64_t hash = UINT64_C(14695981039346656037);

		for (size_t width = 1; width <= 2048; width++) {
			CUdeviceptr p;
			size_t pitch = 0;

			CHECK(cuMemAllocPitch_v2(&p, &pitch, width, 2, elements[i]));
			CHECK(cuMemFree_v2(p));
			hash = (hash ^ pitch) * UINT64_C(1099511628211);
		}
		snprintf(name, sizeof(name), "pitch.elements%u", elements[i]);
		say(name, "%" PRIx64, hash);
	}
}

static void ranges(void)
{
	static const size_t sizes[] = {1, 512, 5000, 1 << 20, (1 << 20) + 1, 20 << 20, 100 << 20};
	char name[64];

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		size_t bytes = sizes[i], size = 0;
		CUdeviceptr p = take(bytes), base = 0;
		CUresult r = cuMemGetAddressRange_v2(&base, &size, p + bytes / 2);

		snprintf(name, sizeof(name), "range.%zu", bytes);
		say(name, "%d base=%d holds=%d slack_below_2MiB=%d", r, base == p, size >= bytes,
			size - bytes < 2 * MIB);
		say("range.base_only", "%d", cuMemGetAddressRange_v2(&base, NULL, p));
		say("range.size_only", "%d", cuMemGetAddressRange_v2(NULL, &size, p));
		CHECK(cuMemFree_v2(p));
	}
}

enum {
	ATTRIBUTE_HOST_POINTER = 4,
	ATTRIBUTE_IS_MANAGED = 8,
	ATTRIBUTE_IS_LEGACY_IPC_CAPABLE = 10,
	ATTRIBUTE_MAPPED = 13,
	ATTRIBUTE_ALLOWED_HANDLES = 14,
	ATTRIBUTE_IS_RDMA_CAPABLE = 15,
	ATTRIBUTE_ACCESS_FLAGS = 16,
};

static void attributes_of(
	const char *name, CUdeviceptr p, CUdeviceptr block, size_t bytes, CUcontext ctx)
{
	static const int plain[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, ATTRIBUTE_HOST_POINTER,
		CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, ATTRIBUTE_IS_MANAGED,
		CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, ATTRIBUTE_IS_LEGACY_IPC_CAPABLE,
		ATTRIBUTE_MAPPED, ATTRIBUTE_ALLOWED_HANDLES, ATTRIBUTE_IS_RDMA_CAPABLE,
		ATTRIBUTE_ACCESS_FLAGS};
	uint64_t value;
	CUresult r;
	char line[96];

	for (size_t i = 0; i < sizeof(plain) / sizeof(plain[0]); i++) {
		value = 0;
		r = cuPointerGetAttribute(&value, plain[i], p);
		snprintf(line, sizeof(line), "attribute.%s.%d", name, plain[i]);
		say(line, "%d %" PRIu64, r, value);
	}
	value = 0;
	r = cuPointerGetAttribute(&value, CU_POINTER_ATTRIBUTE_CONTEXT, p);
	snprintf(line, sizeof(line), "attribute.%s.context", name);
	say(line, "%d same=%d", r, value == (uint64_t)(uintptr_t)ctx);
	value = 0;
	r = cuPointerGetAttribute(&value, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, p);
	snprintf(line, sizeof(line), "attribute.%s.range_start", name);
	say(line, "%d same=%d", r, value == block);
	value = 0;
	r = cuPointerGetAttribute(&value, CU_POINTER_ATTRIBUTE_RANGE_SIZE, p);
	snprintf(line, sizeof(line), "attribute.%s.range_size", name);
	say(line, "%d holds=%d", r, value >= bytes && value - bytes < 2 * MIB);
}

static uint64_t buffer_id(CUdeviceptr p)
{
	uint64_t id = 0;

	CHECK(cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, p));
	return id;
}

static uint64_t buffer_id_of_batch(CUdeviceptr p)
{
	uint64_t id = 0;
	unsigned type = 0;
	int attributes[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_BUFFER_ID};
	void *data[] = {&type, &id};

	CHECK(cuPointerGetAttributes(2, attributes, data, p));
	return id;
}

static void attributes(CUcontext ctx)
{
	CUdeviceptr large = take(8 * MIB), small = take(512), p;
	uint64_t first, second;
	int on = 1, seen = 9;
	size_t lifetimes = 0, agree = 0;

	attributes_of("large", large, large, 8 * MIB, ctx);
	attributes_of("interior", large + 4096, large, 8 * MIB, ctx);
	attributes_of("small", small, small, 512, ctx);
	say("buffer.two_blocks_differ", "%d", buffer_id(large) != buffer_id(small));
	say("buffer.interior_same", "%d", buffer_id(large) == buffer_id(large + 4096));
	CHECK(cuMemFree_v2(large));
	CHECK(cuMemFree_v2(small));
	for (first = 0; lifetimes < 20; lifetimes++, first = second) {
		p = take(8 * MIB);
		second = buffer_id(p);
		agree += second != first && second == buffer_id_of_batch(p);
		CHECK(cuMemFree_v2(p));
		CHECK(cuCtxSynchronize());
	}
	say("buffer.new_per_lifetime", "%zu of %zu", agree, lifetimes);
	p = take(3 * MIB);
	say("sync_memops.set", "%d",
		cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, p));
	cuPointerGetAttribute(&seen, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, p);
	say("sync_memops.get", "%d", seen);
	CHECK(cuMemFree_v2(p));
	CHECK(cuCtxSynchronize());
	p = take(3 * MIB);
	cuPointerGetAttribute(&seen, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, p);
	say("sync_memops.next_owner", "%d", seen);
	CHECK(cuMemFree_v2(p));
}

static void host_flags(void)
{
	char name[64];

	for (unsigned flags = 0; flags < 8; flags++)
		for (int again = 0; again < 2; again++) {
			void *h = NULL;
			unsigned seen = 99;
			CUresult r = cuMemHostAlloc(&h, MIB, flags);

			if (r == CUDA_SUCCESS) {
				cuMemHostGetFlags(&seen, h);
				memset(h, 1, MIB);
			}
			snprintf(name, sizeof(name), "host.flags%u", flags);
			say(name, "%d flags=%u free=%d", r, seen, cuMemFreeHost(h));
		}
}

static void other_contexts(CUcontext primary, CUdevice device)
{
	CUdeviceptr p = take(MIB), q, r;
	CUcontext other, current = NULL;

	CHECK(cuCtxSetCurrent(NULL));
	say("context.none.alloc", "%d", cuMemAlloc_v2(&q, MIB));
	say("context.none.host", "%d", cuMemAllocHost_v2(&(void *){NULL}, MIB));
	say("context.none.info", "%d", cuMemGetInfo_v2(&(size_t){0}, NULL));
	say("context.none.free", "%d", cuMemFree_v2(p));
	cuCtxGetCurrent(&current);
	say("context.none.still_none", "%d", !current);
	CHECK(cuCtxSetCurrent(primary));
	p = take(MIB);
	CHECK(cuCtxCreate_v2(&other, 0, device));
	say("context.other.free", "%d", cuMemFree_v2(p));
	say("context.other.free_again", "%d", cuMemFree_v2(p));
	cuCtxGetCurrent(&current);
	say("context.other.still_current", "%d", current == other);
	q = take(MIB);
	r = take(4096);
	attributes_of("other", q, q, MIB, other);
	CHECK(cuMemsetD8_v2(q, 1, MIB));
	say("context.destroy_with_blocks", "%d", cuCtxDestroy_v2(other));
	CHECK(cuCtxSetCurrent(primary));
	say("context.destroyed.free", "%d", cuMemFree_v2(q));
	say("context.destroyed.free_small", "%d", cuMemFree_v2(r));
	p = take(MIB);
	say("context.primary.works", "%d", cuMemsetD8_v2(p, 2, MIB));
	say("context.primary.free", "%d", cuMemFree_v2(p));
}

static void many_contexts(CUcontext primary, CUdevice device)
{
	size_t before, after;
	int failures = 0;

	CHECK(cuMemGetInfo_v2(&before, NULL));
	for (int i = 0; i < 20; i++) {
		CUcontext ctx;
		CUdeviceptr p = 0;

		CHECK(cuCtxCreate_v2(&ctx, 0, device));
		failures += cuMemAlloc_v2(&p, 16 * MIB) || cuMemsetD8_v2(p, 1, 16 * MIB);
		failures += cuMemFree_v2(take(64 * MIB)) != CUDA_SUCCESS;
		failures += cuCtxDestroy_v2(ctx) != CUDA_SUCCESS;
	}
	CHECK(cuCtxSetCurrent(primary));
	CHECK(cuMemGetInfo_v2(&after, NULL));
	say("contexts.failures", "%d", failures);
	say("contexts.leak", "%d", before > after && before - after > 64 * MIB);
}

static void *allocate_in_thread(void *ctx)
{
	CUdeviceptr p = 0;
	CUresult r = cuMemAlloc_v2(&p, MIB);

	say("thread.fresh.alloc", "%d", r);
	CHECK(cuCtxSetCurrent(ctx));
	say("thread.set.alloc", "%d", cuMemAlloc_v2(&p, MIB));
	return (void *)(uintptr_t)p;
}

static void other_thread(CUcontext ctx)
{
	pthread_t thread;
	void *p;

	if (pthread_create(&thread, NULL, allocate_in_thread, ctx))
		return;
	pthread_join(thread, &p);
	say("thread.free_elsewhere", "%d", cuMemFree_v2((CUdeviceptr)(uintptr_t)p));
}

static void primary_comes_and_goes(CUdevice device)
{
	CUcontext ctx;
	CUdeviceptr p = take(64 * MIB), q;

	say("primary.reset", "%d", cuDevicePrimaryCtxReset_v2(device));
	CHECK(cuDevicePrimaryCtxRetain(&ctx, device));
	CHECK(cuCtxSetCurrent(ctx));
	/* Before anything new is allocated, which may get the same address. */
	say("primary.free_old", "%d", cuMemFree_v2(p));
	q = take(MIB);
	say("primary.use", "%d", cuMemsetD8_v2(q, 1, MIB));
	say("primary.free_new", "%d", cuMemFree_v2(q));
	q = take(MIB);
	say("primary.release", "%d", cuDevicePrimaryCtxRelease_v2(device));
	say("primary.release_last", "%d", cuDevicePrimaryCtxRelease_v2(device));
	say("primary.free_released", "%d", cuMemFree_v2(q));
}

int main(void)
{
	CUdevice device;
	CUcontext ctx;

	if (!load() || cuInit(0) != CUDA_SUCCESS) {
		printf("skip reason=\"no CUDA driver\"\n");
		return 77;
	}
	CHECK(cuDeviceGet(&device, 0));
	CHECK(cuDevicePrimaryCtxRetain(&ctx, device));
	CHECK(cuCtxSetCurrent(ctx));
	ways_in();
	odd_arguments();
	pitches();
	ranges();
	attributes(ctx);
	host_flags();
	other_thread(ctx);
	other_contexts(ctx, device);
	many_contexts(ctx, device);
	primary_comes_and_goes(device);
	return 0;
}
