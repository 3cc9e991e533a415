/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* The end of contexts. */

#include "context.h"

/* A call of the driver's that ends a context, or may. */
struct gp_context_end {
	CUcontext handle; /* NULL: the primary one of the device */
	CUdevice device;
	enum gp_end_when {
		GP_END_PERHAPS,	   /* a primary context: if the driver then says that it is not active, or another */
		GP_END_ON_SUCCESS, /* or if the call succeeds */
		GP_END_SURELY,	   /* whatever the call returns */
	} when;
	CUresult (*driver)(const struct gp_context_end *end);
};

CUresult gp_context_end(const struct gp_context_end *end);
