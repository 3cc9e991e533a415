/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include <stdbool.h>

#include "runtime.h"

static CUdeviceptr address(const void *ptr)
{
	return (CUdeviceptr)(uintptr_t)ptr;
}

/* The TLS model avoids a function call for each access, which a benchmark would measure. */
static __thread unsigned long n_calls __attribute__((tls_model("initial-exec")));

unsigned long simgpu_runtime_calls(void)
{
	return n_calls;
}

/* A request for zero bytes succeeds with NULL, without a call of the driver. */
static bool is_served_without_driver(void **ptr, size_t bytes, cudaError_t *error)
{
	n_calls++;
	*error = ptr ? cudaSuccess : rt_done(cudaErrorInvalidValue);
	if (ptr && !bytes)
		*ptr = NULL;
	return !ptr || !bytes;
}

/* Allocates from the driver. *ptr is NULL if that fails. */
#define ALLOC(ptr, bytes, name, ...)                               \
	do {                                                       \
		cudaError_t error_;                                \
		if (is_served_without_driver(ptr, bytes, &error_)) \
			return error_;                             \
		*(ptr) = NULL;                                     \
		return RT_CALL(name, __VA_ARGS__);                 \
	} while (0)

cudaError_t cudaMalloc(void **ptr, size_t bytes)
{
	ALLOC(ptr, bytes, cuMemAlloc_v2, (CUdeviceptr *)ptr, bytes);
}

cudaError_t cudaFree(void *ptr)
{
	n_calls++;
	return RT_CALL(cuMemFree_v2, address(ptr));
}

cudaError_t cudaMallocHost(void **ptr, size_t bytes)
{
	ALLOC(ptr, bytes, cuMemHostAlloc, ptr, bytes, 0);
}

cudaError_t cudaHostAlloc(void **ptr, size_t bytes, unsigned flags)
{
	ALLOC(ptr, bytes, cuMemHostAlloc, ptr, bytes, flags);
}

cudaError_t cudaFreeHost(void *ptr)
{
	n_calls++;
	return ptr ? RT_CALL(cuMemFreeHost, ptr) : rt_done(rt_enter());
}

cudaError_t cudaHostGetFlags(unsigned *flags, void *ptr)
{
	return RT_CALL(cuMemHostGetFlags, flags, ptr);
}

cudaError_t cudaHostGetDevicePointer(void **device_ptr, void *ptr, unsigned flags)
{
	return RT_CALL(cuMemHostGetDevicePointer_v2, (CUdeviceptr *)device_ptr, ptr, flags);
}

cudaError_t cudaHostRegister(void *ptr, size_t bytes, unsigned flags)
{
	return RT_CALL(cuMemHostRegister_v2, ptr, bytes, flags);
}

cudaError_t cudaHostUnregister(void *ptr)
{
	return RT_CALL(cuMemHostUnregister, ptr);
}

cudaError_t cudaMallocPitch(void **ptr, size_t *pitch, size_t width, size_t height)
{
	if (!pitch)
		return rt_done(cudaErrorInvalidValue);
	if (!width || !height)
		*pitch = 0;
	ALLOC(ptr, width && height, cuMemAllocPitch_v2, (CUdeviceptr *)ptr, pitch, width, height, 4);
}

cudaError_t cudaMallocManaged(void **ptr, size_t bytes, unsigned flags)
{
	ALLOC(ptr, bytes, cuMemAllocManaged, (CUdeviceptr *)ptr, bytes, flags);
}

cudaError_t cudaMallocAsync(void **ptr, size_t bytes, cudaStream_t stream)
{
	ALLOC(ptr, bytes, cuMemAllocAsync, (CUdeviceptr *)ptr, bytes, stream);
}

cudaError_t cudaMallocAsync_ptsz(void **ptr, size_t bytes, cudaStream_t stream)
	__attribute__((visibility(RT_VISIBILITY)));
cudaError_t cudaMallocAsync_ptsz(void **ptr, size_t bytes, cudaStream_t stream)
{
	ALLOC(ptr, bytes, cuMemAllocAsync_ptsz, (CUdeviceptr *)ptr, bytes, stream);
}

cudaError_t cudaMallocFromPoolAsync(void **ptr, size_t bytes, cudaMemPool_t pool, cudaStream_t stream)
{
	ALLOC(ptr, bytes, cuMemAllocFromPoolAsync, (CUdeviceptr *)ptr, bytes, pool, stream);
}

cudaError_t cudaMallocFromPoolAsync_ptsz(void **ptr, size_t bytes, cudaMemPool_t pool, cudaStream_t stream)
	__attribute__((visibility(RT_VISIBILITY)));
cudaError_t cudaMallocFromPoolAsync_ptsz(void **ptr, size_t bytes, cudaMemPool_t pool, cudaStream_t stream)
{
	ALLOC(ptr, bytes, cuMemAllocFromPoolAsync_ptsz, (CUdeviceptr *)ptr, bytes, pool, stream);
}

cudaError_t cudaFreeAsync(void *ptr, cudaStream_t stream)
{
	return ptr ? RT_CALL(cuMemFreeAsync, address(ptr), stream) : rt_done(rt_enter());
}

RT_PER_THREAD(cudaFreeAsync_ptsz, (void *ptr, cudaStream_t stream), cuMemFreeAsync_ptsz, address(ptr), stream)

cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t *pool, int device)
{
	return RT_CALL(cuDeviceGetDefaultMemPool, pool, device);
}

#if RT_VERSION >= 13000
cudaError_t cudaMemSetMemPool(CUmemLocation *location, int type, cudaMemPool_t pool)
{
	return RT_CALL(cuMemSetMemPool, location, type, pool);
}
#endif

cudaError_t cudaMemPoolCreate(cudaMemPool_t *pool, const CUmemPoolProps *properties)
{
	return RT_CALL(cuMemPoolCreate, pool, properties);
}

cudaError_t cudaMemPoolDestroy(cudaMemPool_t pool)
{
	return RT_CALL(cuMemPoolDestroy, pool);
}

cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, size_t keep_bytes)
{
	return RT_CALL(cuMemPoolTrimTo, pool, keep_bytes);
}

cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, int attribute, void *value)
{
	return RT_CALL(cuMemPoolGetAttribute, pool, attribute, value);
}

cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, int attribute, void *value)
{
	return RT_CALL(cuMemPoolSetAttribute, pool, attribute, value);
}

cudaError_t cudaMemPoolSetAccess(cudaMemPool_t pool, const CUmemAccessDesc *access, size_t n)
{
	return RT_CALL(cuMemPoolSetAccess, pool, access, n);
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes)
{
	return RT_CALL(cuMemGetInfo_v2, free_bytes, total_bytes);
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *attributes, const void *ptr)
{
	unsigned type = 0, managed = 0;
	int device = 0, which[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_IS_MANAGED,
				CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
	void *into[] = {&type, &managed, &device};
	cudaError_t error;

	if (!attributes)
		return rt_done(cudaErrorInvalidValue);
	error = RT_CALL(cuPointerGetAttributes, 3, which, into, address(ptr));
	if (error)
		return error;
	*attributes = (struct cudaPointerAttributes){.type = managed ? cudaMemoryTypeManaged : (int)type,
		.device = device,
		.devicePointer = type ? (void *)(uintptr_t)ptr : NULL,
		.hostPointer = type == CU_MEMORYTYPE_DEVICE && !managed ? NULL : (void *)(uintptr_t)ptr};
	return cudaSuccess;
}

/* With unified addressing the direction is only a hint: it is checked, and then left to the driver. */
static bool is_kind(int kind)
{
	return kind >= cudaMemcpyHostToHost && kind <= cudaMemcpyDefault;
}

cudaError_t cudaMemcpy(void *dst, const void *src, size_t bytes, int kind)
{
	if (!is_kind(kind))
		return rt_done(cudaErrorInvalidValue);
	return RT_CALL(cuMemcpy, address(dst), address(src), bytes);
}

RT_PER_THREAD(cudaMemcpy_ptds, (void *dst, const void *src, size_t bytes, int kind), cuMemcpy_ptds, address(dst),
	address(src), bytes)

cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t bytes, int kind, cudaStream_t stream)
{
	if (!is_kind(kind))
		return rt_done(cudaErrorInvalidValue);
	return RT_CALL(cuMemcpyAsync, address(dst), address(src), bytes, stream);
}

RT_PER_THREAD(cudaMemcpyAsync_ptsz, (void *dst, const void *src, size_t bytes, int kind, cudaStream_t stream),
	cuMemcpyAsync_ptsz, address(dst), address(src), bytes, stream)

cudaError_t cudaMemset(void *ptr, int value, size_t bytes)
{
	return RT_CALL(cuMemsetD8_v2, address(ptr), (unsigned char)value, bytes);
}

RT_PER_THREAD(cudaMemset_ptds, (void *ptr, int value, size_t bytes), cuMemsetD8_v2_ptds, address(ptr),
	(unsigned char)value, bytes)

cudaError_t cudaMemsetAsync(void *ptr, int value, size_t bytes, cudaStream_t stream)
{
	return RT_CALL(cuMemsetD8Async, address(ptr), (unsigned char)value, bytes, stream);
}

RT_PER_THREAD(cudaMemsetAsync_ptsz, (void *ptr, int value, size_t bytes, cudaStream_t stream), cuMemsetD8Async_ptsz,
	address(ptr), (unsigned char)value, bytes, stream)
