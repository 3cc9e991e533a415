/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Makes allocations that gpupool counts and passes through to the driver: managed memory, the driver's stream-ordered
 * pools, arrays, and physical memory. If one runs out of memory, the retry rounds run, since the cache may be the
 * reason.
 */

#include "shim/backend/unpooled.h"

/* Values of gp_unpooled.device that are not device numbers. */
enum {
	GP_UNPOOLED_CURRENT = -1, /* the current context's device */
	GP_UNPOOLED_HOST = -2,    /* host memory, which is not counted */
};

enum gp_unpooled_end {
	GP_UNPOOLED_STAYS,             /* lives until it is freed */
	GP_UNPOOLED_ENDS_WITH_CONTEXT, /* also ends with its context */
};

/* An allocation under way. call() makes the driver's call and stores its output through arg. */
struct gp_unpooled {
	enum gp_unpooled_kind kind;
	uint64_t bytes; /* 0: the allocation is not counted */
	int device;
	enum gp_unpooled_end end;
	CUresult (*call)(void *arg);
	void *arg;
	const uint64_t *id; /* where call() stores the pointer or handle */
};

/* Writes a pointer of 0 on out-of-memory, as the driver does: if a limit has refused, the driver was not called. */
static inline CUresult gp_unpooled_clear_if_oom(CUresult r, CUdeviceptr *ptr)
{
	if (r == CUDA_ERROR_OUT_OF_MEMORY && ptr)
		*ptr = 0;
	return r;
}

/* Allocates. Returns the driver's result, or CUDA_ERROR_OUT_OF_MEMORY if the limit forbids the allocation. */
CUresult gp_unpooled_alloc(const struct gp_unpooled *allocation);
