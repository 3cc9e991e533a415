/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Green contexts are shares of a primary context. All memory belongs to the primary context; an event that is
 * recorded there covers the work of its green contexts, a GPU wait there holds their work back, and its frees wait
 * for their work (measured). So the pool of the primary context serves them, and gpupool only has to know which
 * handle stands for which primary context.
 */

#include "context.h"

/*
 * Returns the primary context if the handle stands for a green context of it; NULL if it stands for no known green
 * context.
 */
CUcontext gp_green_primary(CUcontext handle);

/* The same for the current context. Asks the driver if the handle is unknown. */
CUcontext gp_green_find(CUcontext current);

/* Note what a successful driver call has done. */
void gp_green_created(CUgreenCtx green, CUdevice device);
void gp_green_converted(CUgreenCtx green, CUcontext handle);
void gp_green_destroyed(CUgreenCtx green);

/* Returns the device of a green context, or -1 if the green context is unknown. */
CUdevice gp_green_device(CUgreenCtx green);

/* Returns true if the device has a green context. */
bool gp_green_is_on(CUdevice device);
