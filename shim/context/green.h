/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Green contexts are shares of a primary context. Measured:
 *
 *   - all memory belongs to the primary context;
 *   - an event that is recorded in the primary context covers the work of its green contexts;
 *   - a GPU wait in the primary context holds their work back;
 *   - a free in the primary context waits for their work.
 *
 * So the pools of the primary context serve its green contexts, and gpupool only has to know the primary context of
 * each green context's handle.
 */

#include "context.h"

/*
 * Returns the primary context of the green context with that handle; NULL if the handle is not that of a known green
 * context.
 */
CUcontext gp_green_primary(CUcontext handle);

/* The same for the current context. Asks the driver if the handle is unknown. */
CUcontext gp_green_find(CUcontext current);

/*
 * Note that the driver has created a green context, converted it to a context (cuCtxFromGreenCtx), or destroyed it.
 */
void gp_green_created(CUgreenCtx green, CUdevice device);
void gp_green_converted(CUgreenCtx green, CUcontext handle);
void gp_green_destroyed(CUgreenCtx green);

/* Returns the device of a green context, or -1 if the green context is unknown. */
CUdevice gp_green_device(CUgreenCtx green);

/* Returns true if the device has a green context. */
bool gp_green_is_on(CUdevice device);
