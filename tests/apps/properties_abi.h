/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

#include <stddef.h>

/* The device properties of the CUDA 13 runtime. Members that no test reads are merged into arrays. */
struct cudaDeviceProp {
	char name[256], uuid[16], luid[8];
	unsigned luidDeviceNodeMask;
	size_t totalGlobalMem, sharedMemPerBlock;
	int regsPerBlock, warpSize;
	size_t memPitch;
	int maxThreadsPerBlock, maxThreadsDim[3], maxGridSize[3];
	size_t totalConstMem;
	int major, minor;
	size_t textureAlignment, texturePitchAlignment;
	int multiProcessorCount, integrated, canMapHostMemory, textures_and_surfaces[39];
	size_t surfaceAlignment;
	int concurrentKernels, ECCEnabled, pciBusID, pciDeviceID, pciDomainID, tccDriver, asyncEngineCount,
		unifiedAddressing, memoryBusWidth, l2CacheSize, persistingL2CacheMaxSize, maxThreadsPerMultiProcessor,
		streamPrioritiesSupported, caching[2];
	size_t sharedMemPerMultiprocessor;
	int regsPerMultiprocessor, managedMemory, boards[2], hostNativeAtomicSupported, pageableMemoryAccess,
		concurrentManagedAccess, computePreemptionSupported, canUseHostPointerForRegisteredMem,
		cooperativeLaunch;
	size_t sharedMemPerBlockOptin;
	int page_tables[2], maxBlocksPerMultiProcessor, accessPolicyMaxWindowSize;
	size_t reservedSharedMemPerBlock;
	int hostRegisterSupported, arrays_and_semaphores[3], memoryPoolsSupported, gpuDirectRDMASupported, more[69];
};
