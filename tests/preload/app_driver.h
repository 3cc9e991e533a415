/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* For the programs that are linked to the driver: a context and kernels. */

#include "app.h"

extern CUcontext app_ctx;

/* Initialises the driver, makes the first device's primary context current and loads the kernels. */
void app_start(void);

CUdeviceptr app_alloc(size_t bytes);
CUstream app_stream(void); /* a non-blocking one */

void app_fill(CUstream stream, CUdeviceptr ptr, size_t bytes, uint32_t value);
void app_fill_ex(CUstream stream, CUdeviceptr ptr, size_t bytes, uint32_t value); /* by a launch with attributes */
void app_fill_early(CUstream stream, CUdeviceptr ptr, size_t bytes, uint32_t value); /* waits for no kernel before it */
void app_spin(CUstream stream, uint64_t ns);
void app_spin_until(CUstream stream, const uint32_t *flag, uint32_t value); /* of pinned memory */
void app_spin_fill(CUstream stream, CUdeviceptr ptr, size_t bytes, uint32_t value, uint64_t ns);

/* Words at ptr that are not the value, once all earlier work of the stream is done. */
size_t app_count_wrong(CUstream stream, CUdeviceptr ptr, size_t bytes, uint32_t value);
