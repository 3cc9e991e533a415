/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* A plug-in with a private CUDA runtime, which is built with each of several versions. */

#include "tests/apps/cudart_min.h"

struct lib_runtime {
	int (*version)(void);
	unsigned long (*calls)(void); /* this thread's calls for memory that reached the runtime */
	cudaError_t (*alloc)(void **ptr, size_t bytes);
	cudaError_t (*release)(void *ptr);
	cudaError_t (*alloc_host)(void **ptr, size_t bytes);
	cudaError_t (*release_host)(void *ptr);
	cudaError_t (*set_device)(int device);
	cudaError_t (*reset)(void);
	cudaError_t (*take_last_error)(void);
	cudaError_t (*device_of)(const void *ptr, int *device);
	void (*keep)(void *ptr); /* the plug-in's destructor frees it */
};

__attribute__((visibility("default"))) const struct lib_runtime *lib_runtime(void);
