/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* Device memory of a context, over the driver. */

#include "shim/context/context.h"

/* Registers the backend with the contexts. */
void gp_backend_start(void);

/* Frees one driver allocation that gpupool made, without waiting where that is possible. */
void gp_device_give_back(struct gp_context *context, CUdeviceptr ptr);

/* Returns the bytes that the driver could still allocate on the context's device, or UINT64_MAX if unknown. */
uint64_t gp_device_available(struct gp_context *context);
