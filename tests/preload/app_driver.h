/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* For programs that are linked to the driver: a context and kernels. */

#include "app.h"

extern CUcontext app_ctx;

/* Initialises the driver, makes the first device's primary context current and loads the kernels. */
void app_start(void);

/*
 * Does the same, and with APP_CREATED=1 creates a context beside the primary one. app_end_owner ends that, or else the
 * primary context. Then the primary context is current.
 */
void app_start_owner(void);
void app_end_owner(void);

CUdeviceptr app_alloc(size_t bytes);
CUstream app_stream(void); /* non-blocking */

void app_fill(CUstream stream, CUdeviceptr ptr, size_t bytes, uint32_t value);
void app_fill_ex(CUstream stream, CUdeviceptr ptr, size_t bytes, uint32_t value); /* by a launch with attributes */

/* This kernel may start before the previous one of the stream has ended. */
void app_fill_early(CUstream stream, CUdeviceptr ptr, size_t bytes, uint32_t value);

void app_spin(CUstream stream, uint64_t ns);
void app_spin_until(CUstream stream, const uint32_t *flag, uint32_t value); /* the flag is in pinned memory */
void app_spin_fill(CUstream stream, CUdeviceptr ptr, size_t bytes, uint32_t value, uint64_t ns);

/* Counts the words at ptr that differ from the value, after all earlier work of the stream. */
size_t app_count_wrong(CUstream stream, CUdeviceptr ptr, size_t bytes, uint32_t value);

/* Makes the GPU add the number of these words to the 64-bit integer at sum. The host does not wait. */
void app_add_wrong(CUstream stream, CUdeviceptr ptr, size_t bytes, uint32_t value, CUdeviceptr sum);
