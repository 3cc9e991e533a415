/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Allocations that gpupool counts and passes through to the driver: managed memory, the driver's stream-ordered pools,
 * arrays, and physical memory. They are charged to the device's limit. If one runs out of memory, the retry rounds run,
 * since the cache may be the reason. README.md lists how the memory of each function is treated.
 */

#include "shim/context/context.h"

enum gp_unpooled_kind {
	GP_UNPOOLED_POINTER, /* freed by cuMemFree or cuMemFreeAsync */
	GP_UNPOOLED_ARRAY,
	GP_UNPOOLED_MIPMAPPED,
	GP_UNPOOLED_HANDLE, /* kept by references: handles and mappings */
};

/* Values of gp_unpooled.device that are not device numbers. */
enum {
	GP_UNPOOLED_CURRENT = -1, /* the current context's device */
	GP_UNPOOLED_HOST = -2,    /* host memory, which is not counted */
};

enum gp_unpooled_end {
	GP_UNPOOLED_STAYS,             /* lives until it is freed */
	GP_UNPOOLED_ENDS_WITH_CONTEXT, /* also ends with its context */
	GP_UNPOOLED_ENDS_WITH_PRIMARY, /* also ends with the current context, if that is a primary context */
};

/* An allocation under way. call() makes the driver's call and stores its output through arg. */
struct gp_unpooled {
	enum gp_unpooled_kind kind;
	uint64_t bytes; /* 0: nothing is counted */
	int device;
	enum gp_unpooled_end end;
	CUresult (*call)(void *arg);
	void *arg;
	const uint64_t *id; /* where call() leaves the pointer or handle */
};

/* Allocates. Returns the driver's result, or CUDA_ERROR_OUT_OF_MEMORY if the limit forbids the allocation. */
CUresult gp_unpooled_alloc(const struct gp_unpooled *allocation);

/* Drops a reference, as for a free. The last one uncharges the memory. Unknown ids are ignored. */
void gp_unpooled_forget(enum gp_unpooled_kind kind, uint64_t id);

/* Adds a reference. Returns false if the id is unknown. */
bool gp_unpooled_retain(enum gp_unpooled_kind kind, uint64_t id);

/* Uncharges the allocations that have ended with their context. */
void gp_unpooled_forget_context(const struct gp_context *context);

/* Return the number of allocations, and call back for each, with a lock held. */
size_t gp_unpooled_count(void);
struct gp_unpooled_info {
	enum gp_unpooled_kind kind;
	uint64_t id, bytes;
	int device;
	uint32_t module; /* module.h */
};
void gp_unpooled_each(void (*fn)(void *arg, const struct gp_unpooled_info *info), void *arg);
