/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * CU_POINTER_ATTRIBUTE_SYNC_MEMOPS for mapped memory, for which the driver refuses it: memory operations that are
 * synchronous always wait then, also those that the driver lets run on. A flag of the context, CU_CTX_SYNC_MEMOPS, has
 * this effect for all of its memory (measured on an H100 and an H200). Drivers from CUDA 12.1 on have it.
 */

#include "context.h"

/* Sets the flag for good. Returns CUDA_ERROR_NOT_SUPPORTED if the driver has no such flag, or the driver's error. */
CUresult gp_memops_synchronise(struct gp_context *context);

/* Returns the flag if it has been set in that way, or 0. */
unsigned gp_memops_flags(CUcontext handle);

/* Sets the flag again after the program has set the flags of the device's primary context, if it was set. */
void gp_memops_restore(CUdevice device);
