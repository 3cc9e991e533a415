/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* The end of contexts. */

#include "context.h"

/* A driver call that ends a context, or may end it. */
struct gp_context_end {
	CUcontext handle; /* NULL: the primary one of the device */
	CUdevice device;
	enum gp_end_when {
		GP_END_PERHAPS,    /* if the primary context is then inactive, or another one */
		GP_END_ON_SUCCESS, /* then, and if the call succeeds */
		GP_END_SURELY,     /* always, even if the call returns an error */
	} when;
	CUresult (*driver)(const struct gp_context_end *end);
};

CUresult gp_context_end(const struct gp_context_end *end);
