/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * A stub of the CUDA driver that does nothing at the least possible cost, so that a benchmark shows the cost of the
 * library itself. The GPU is always idle, memory never runs out and is never touched.
 *
 * Addresses name their size class, so a free needs no table: it puts the address on its thread's stack of that class,
 * from which the next allocation takes it. Each thread counts its own calls, so no two threads write to one cache line.
 */

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "stub_driver.h"
#include "tests/apps/cuda_min.h"

#define HOOK(symbol, name, version, flags, parameters, arguments) CUresult symbol parameters;
#define CALL(symbol, parameters)                                  CUresult symbol parameters;
#include "shim/driver/hooks.def"

enum {
	CLASS_MIN = 9, /* 512 bytes, the smallest block of the driver */
	CLASS_MAX = 39,
	CLASS_BITS = 42,  /* width of the addresses of a class */
	STACK_SIZE = 256, /* free addresses of a class that a thread keeps */
	CONTEXTS_MAX = 8, /* contexts that one thread can push */
	DEVICE_GIB = 140,
};

/* Host memory is in the upper half of the addresses. */
#define HOST_BIT (UINT64_C(1) << 52)

struct CUctx_st {
	unsigned long long id;
};

static struct CUctx_st primary = {1};
static _Atomic unsigned long long last_id = 1;
static _Atomic uint64_t next_index[CLASS_MAX + 1];

/* The data of a thread; this_thread() returns them. */
struct thread_data {
	CUcontext contexts[CONTEXTS_MAX];
	unsigned n_contexts;
	uint64_t n_calls[STUB_N_CALLS];
	struct {
		unsigned n;
		uint64_t addresses[STACK_SIZE];
	} free[CLASS_MAX + 1];
};

/*
 * Only a pointer: a library that is opened late gets little of the static TLS space, which is reached without a call.
 */
static _Thread_local struct thread_data *this_thread_or_null __attribute__((tls_model("initial-exec")));

static __attribute__((noinline)) struct thread_data *this_thread_new(void)
{
	this_thread_or_null = calloc(1, sizeof(*this_thread_or_null));
	if (!this_thread_or_null)
		abort();
	return this_thread_or_null;
}

static struct thread_data *this_thread(void)
{
	return this_thread_or_null ? this_thread_or_null : this_thread_new();
}

uint64_t stub_calls(enum stub_call call)
{
	return this_thread()->n_calls[call];
}

static CUresult count(enum stub_call call)
{
	this_thread()->n_calls[call]++;
	return CUDA_SUCCESS;
}

static unsigned class_of(size_t bytes)
{
	return bytes <= 1 << CLASS_MIN ? CLASS_MIN : 64 - (unsigned)__builtin_clzll(bytes - 1);
}

static uint64_t take_address(size_t bytes)
{
	unsigned class = class_of(bytes);

	if (this_thread()->free[class].n)
		return this_thread()->free[class].addresses[--this_thread()->free[class].n];
	return ((uint64_t) class << CLASS_BITS) + (atomic_fetch_add(&next_index[class], 1) << class);
}

static void release_address(uint64_t address)
{
	unsigned class = (address & ~HOST_BIT) >> CLASS_BITS;

	if (this_thread()->free[class].n < STACK_SIZE)
		this_thread()->free[class].addresses[this_thread()->free[class].n++] = address & ~HOST_BIT;
}

/* Memory. */

CUresult cuMemAlloc_v2(CUdeviceptr *ptr, size_t bytes)
{
	*ptr = take_address(bytes);
	return count(STUB_MEMORY);
}

CUresult cuMemFree_v2(CUdeviceptr ptr)
{
	release_address(ptr);
	return count(STUB_MEMORY);
}

CUresult cuMemAllocAsync(CUdeviceptr *ptr, size_t bytes, CUstream stream)
{
	return cuMemAlloc_v2(ptr, bytes);
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr *ptr, size_t bytes, CUmemoryPool pool, CUstream stream)
{
	return cuMemAlloc_v2(ptr, bytes);
}

CUresult cuMemFreeAsync(CUdeviceptr ptr, CUstream stream)
{
	return cuMemFree_v2(ptr);
}

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *pool, CUdevice device)
{
	*pool = (CUmemoryPool)&primary;
	return count(STUB_OTHER);
}

CUresult cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice device)
{
	return cuDeviceGetDefaultMemPool(pool, device);
}

CUresult cuMemHostAlloc(void **ptr, size_t bytes, unsigned flags)
{
	*ptr = (void *)(uintptr_t)(take_address(bytes) | HOST_BIT);
	return count(STUB_MEMORY);
}

CUresult cuMemFreeHost(void *ptr)
{
	release_address((uintptr_t)ptr);
	return count(STUB_MEMORY);
}

CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes)
{
	*free_bytes = *total_bytes = (size_t)DEVICE_GIB << 30;
	return count(STUB_OTHER);
}

/* Contexts. */

CUresult cuCtxGetCurrent(CUcontext *ctx)
{
	*ctx = this_thread()->n_contexts ? this_thread()->contexts[this_thread()->n_contexts - 1] : NULL;
	return count(STUB_CURRENT);
}

CUresult cuCtxPushCurrent_v2(CUcontext ctx)
{
	if (this_thread()->n_contexts == CONTEXTS_MAX)
		return CUDA_ERROR_INVALID_VALUE;
	this_thread()->contexts[this_thread()->n_contexts++] = ctx;
	return count(STUB_OTHER);
}

CUresult cuCtxPopCurrent_v2(CUcontext *ctx)
{
	if (!this_thread()->n_contexts)
		return CUDA_ERROR_INVALID_CONTEXT;
	*ctx = this_thread()->contexts[--this_thread()->n_contexts];
	return count(STUB_OTHER);
}

CUresult cuCtxSetCurrent(CUcontext ctx)
{
	this_thread()->n_contexts -= this_thread()->n_contexts != 0;
	return cuCtxPushCurrent_v2(ctx);
}

CUresult cuCtxCreate_v2(CUcontext *ctx, unsigned flags, CUdevice device)
{
	CUcontext made = malloc(sizeof(*made));

	if (!made)
		return CUDA_ERROR_OUT_OF_MEMORY;
	made->id = atomic_fetch_add(&last_id, 1) + 1;
	*ctx = made;
	return cuCtxPushCurrent_v2(made);
}

CUresult cuCtxGetId(CUcontext ctx, unsigned long long *id)
{
	*id = ctx->id;
	return count(STUB_OTHER);
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *ctx, CUdevice device)
{
	*ctx = &primary;
	return count(STUB_OTHER);
}

CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned *flags, int *active)
{
	*flags = 0;
	*active = 1;
	return count(STUB_OTHER);
}

/* Fences, of a GPU that has always completed everything. */

CUresult cuEventCreate(CUevent *event, unsigned flags)
{
	*event = malloc(1);
	return *event ? count(STUB_OTHER) : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuCtxRecordEvent(CUcontext ctx, CUevent event)
{
	return count(STUB_RECORD);
}

CUresult cuCtxWaitEvent(CUcontext ctx, CUevent event)
{
	return count(STUB_FENCE);
}

CUresult cuEventQuery(CUevent event)
{
	return count(STUB_FENCE);
}

CUresult cuCtxSynchronize(void)
{
	return count(STUB_FENCE);
}

/* Streams. */

CUresult cuStreamCreate(CUstream *stream, unsigned flags)
{
	*stream = malloc(1);
	return *stream ? count(STUB_OTHER) : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuStreamCreateWithPriority(CUstream *stream, unsigned flags, int priority)
{
	return cuStreamCreate(stream, flags);
}

/* The streams have one context, and none orders itself with the legacy stream. */
CUresult cuStreamGetId(CUstream stream, unsigned long long *id)
{
	*id = (uintptr_t)stream;
	return count(STUB_OTHER);
}

CUresult cuStreamGetCtx(CUstream stream, CUcontext *ctx)
{
	*ctx = &primary;
	return count(STUB_OTHER);
}

CUresult cuStreamGetFlags(CUstream stream, unsigned *flags)
{
	*flags = 1;
	return count(STUB_OTHER);
}

CUresult cuEventRecord(CUevent event, CUstream stream)
{
	return count(STUB_OTHER);
}

CUresult cuLaunchKernel(CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
	unsigned bz, unsigned shared, CUstream stream, void **params, void **extra)
{
	return count(STUB_OTHER);
}

CUresult cuLaunchHostFunc(CUstream stream, void (*function)(void *data), void *data)
{
	return count(STUB_OTHER);
}

CUresult cuStreamQuery(CUstream stream)
{
	return count(STUB_FENCE);
}

CUresult cuStreamSynchronize(CUstream stream)
{
	return count(STUB_FENCE);
}

CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags)
{
	return count(STUB_FENCE);
}

CUresult cuStreamIsCapturing(CUstream stream, int *status)
{
	*status = 0;
	return count(STUB_OTHER);
}

CUresult cuThreadExchangeStreamCaptureMode(int *mode)
{
	return count(STUB_OTHER);
}

/* Mapped memory: addresses that are used once, and handles that are numbers. */

enum { RANGES_BASE_BIT = 54 };

CUresult cuMemAddressReserve(
	CUdeviceptr *ptr, size_t bytes, size_t alignment, CUdeviceptr hint, unsigned long long flags)
{
	static _Atomic uint64_t next = UINT64_C(1) << RANGES_BASE_BIT;

	*ptr = atomic_fetch_add(&next, bytes);
	return count(STUB_OTHER);
}

CUresult cuMemAddressFree(CUdeviceptr ptr, size_t bytes)
{
	return count(STUB_OTHER);
}

CUresult cuMemGetAllocationGranularity(size_t *bytes, const void *properties, int option)
{
	*bytes = (size_t)2 << 20;
	return count(STUB_OTHER);
}

CUresult cuMemCreate(
	CUmemGenericAllocationHandle *handle, size_t bytes, const void *properties, unsigned long long flags)
{
	static _Atomic uint64_t next = 1;

	*handle = atomic_fetch_add(&next, 1);
	return count(STUB_MEMORY);
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
	return count(STUB_MEMORY);
}

CUresult cuMemMap(
	CUdeviceptr ptr, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle, unsigned long long flags)
{
	return count(STUB_OTHER);
}

CUresult cuMemUnmap(CUdeviceptr ptr, size_t bytes)
{
	return count(STUB_OTHER);
}

CUresult cuMemSetAccess(CUdeviceptr ptr, size_t bytes, const CUmemAccessDesc *access, size_t n)
{
	return count(STUB_OTHER);
}

/* Devices. There is one. */

CUresult cuInit(unsigned flags)
{
	return CUDA_SUCCESS;
}

CUresult cuDriverGetVersion(int *version)
{
	*version = 13000;
	return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
	*device = 0;
	return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int *n)
{
	*n = 1;
	return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice *device)
{
	*device = 0;
	return count(STUB_OTHER);
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device)
{
	*bytes = (size_t)DEVICE_GIB << 30;
	return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice device)
{
	*value = 1;
	return CUDA_SUCCESS;
}

/*
 * Ignores the version, and returns the newest function of that name: the address that dlsym returns, as with a real
 * driver.
 */
CUresult cuGetProcAddress_v2(const char *name, void **pfn, int version, uint64_t flags, int *status)
{
	void *self = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
	char newest[128] = "";

	if (self && strlen(name) < sizeof(newest) - 3)
		strcat(strcpy(newest, name), "_v2");
	*pfn = self ? dlsym(self, newest) : NULL;
	if (self && !*pfn)
		*pfn = dlsym(self, name);
	return *pfn ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}
