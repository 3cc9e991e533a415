/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Properties of devices, and access between them. */

#include "runtime.h"

cudaError_t cudaDriverGetVersion(int *version)
{
	return rt_done(rt_enter_without_context() ?: rt_driver.cuDriverGetVersion(version));
}

#if RT_VERSION >= 13000 /* older versions have another structure and another name */
_Static_assert(sizeof(struct cudaDeviceProp) == 1008, "as in driver_types.h");
_Static_assert(offsetof(struct cudaDeviceProp, gpuDirectRDMASupported) == 724, "as in driver_types.h");

static const struct {
	int attribute;
	size_t offset;
} numbers[] = {
#define NUMBER(attribute, member)                                  \
	{                                                          \
		attribute, offsetof(struct cudaDeviceProp, member) \
	}
	NUMBER(1, maxThreadsPerBlock),
	NUMBER(10, warpSize),
	NUMBER(16, multiProcessorCount),
	NUMBER(19, canMapHostMemory),
	NUMBER(31, concurrentKernels),
	NUMBER(40, asyncEngineCount),
	NUMBER(41, unifiedAddressing),
	NUMBER(75, major),
	NUMBER(76, minor),
	NUMBER(78, streamPrioritiesSupported),
	NUMBER(83, managedMemory),
	NUMBER(89, concurrentManagedAccess),
	NUMBER(91, canUseHostPointerForRegisteredMem),
	NUMBER(99, hostRegisterSupported),
	NUMBER(115, memoryPoolsSupported),
	NUMBER(116, gpuDirectRDMASupported),
#undef NUMBER
};

/* Properties that the simulated runtime does not query from the driver are 0. */
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *prop, int device)
{
	cudaError_t error = rt_enter_without_context();

	if (!error && !prop)
		error = cudaErrorInvalidValue;
	if (error)
		return rt_done(error);
	*prop = (struct cudaDeviceProp){0};
	error = rt_driver.cuDeviceGetName(prop->name, sizeof(prop->name), device);
	if (!error)
		error = rt_driver.cuDeviceGetUuid_v2((CUuuid *)prop->uuid, device);
	if (!error)
		error = rt_driver.cuDeviceTotalMem_v2(&prop->totalGlobalMem, device);
	for (size_t i = 0; !error && i < sizeof(numbers) / sizeof(*numbers); i++)
		error = rt_driver.cuDeviceGetAttribute(
			(int *)((char *)prop + numbers[i].offset), numbers[i].attribute, device);
	return rt_done(error);
}
#endif

cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer)
{
	return rt_done(rt_enter_without_context() ?: rt_driver.cuDeviceCanAccessPeer(can, device, peer));
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags)
{
	CUcontext ctx;
	int device;
	cudaError_t error = rt_enter() ?: rt_primary(peer, &ctx) ?: rt_driver.cuCtxGetDevice(&device);

	if (!error && device == peer)
		error = cudaErrorInvalidDevice;
	return rt_done(error ? error : rt_driver.cuCtxEnablePeerAccess(ctx, flags));
}

static cudaError_t contexts_of(int dst_device, CUcontext *dst, int src_device, CUcontext *src)
{
	return rt_enter() ?: rt_primary(dst_device, dst) ?: rt_primary(src_device, src);
}

cudaError_t cudaMemcpyPeerAsync(
	void *dst, int dst_device, const void *src, int src_device, size_t bytes, cudaStream_t stream)
{
	CUcontext to, from;
	cudaError_t error = contexts_of(dst_device, &to, src_device, &from);

	return rt_done(error ? error
			     : rt_driver.cuMemcpyPeerAsync((CUdeviceptr)(uintptr_t)dst, to, (CUdeviceptr)(uintptr_t)src,
				       from, bytes, stream));
}
