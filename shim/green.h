/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Green contexts. They are shares of a primary context: all memory is that one's, a record in it covers their work, an
 * order in it holds it back, and its frees wait for it (measured). So the primary context's pool serves them, and all
 * that is needed is to know which handle stands for which.
 */

#include "context.h"

/* The primary context of the green one that a handle stands for; NULL if it stands for none that is known. */
CUcontext gp_green_primary(CUcontext handle);

/* The same for the current context, about which the driver is asked if it is not known. */
CUcontext gp_green_find(CUcontext current);

/* What the driver has done with success. */
void gp_green_created(CUgreenCtx green, CUdevice device);
void gp_green_converted(CUgreenCtx green, CUcontext handle);
void gp_green_destroyed(CUgreenCtx green);

/* Of a green context; -1 if it is not known. */
CUdevice gp_green_device(CUgreenCtx green);
bool gp_green_is_on(CUdevice device);
