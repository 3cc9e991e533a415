/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Allocations that gpupool counts and passes through: managed memory, the driver's stream-ordered pools, arrays, and
 * virtual-memory handles. They are charged to the device's limit, and their out-of-memory goes through the retry
 * rounds, since the cache may have caused it.
 */

#include "context.h"

enum gp_unpooled_kind {
	GP_UNPOOLED_POINTER, /* freed by cuMemFree or cuMemFreeAsync */
	GP_UNPOOLED_ARRAY,
	GP_UNPOOLED_MIPMAPPED,
	GP_UNPOOLED_HANDLE,
};

/* One allocation under way; call() makes the driver's own call and sets what it returns through its argument. */
struct gp_unpooled {
	enum gp_unpooled_kind kind;
	uint64_t bytes;
	bool is_context_bound; /* goes when its context ends */
	CUresult (*call)(void *arg);
	void *arg;
	const uint64_t *id; /* where call() leaves the pointer or handle */
};

/* The driver's result, or out of memory where the limit forbids it. */
CUresult gp_unpooled_alloc(const struct gp_unpooled *allocation);

/* It is being freed: takes it off the account. Unknown ones are ignored. */
void gp_unpooled_forget(enum gp_unpooled_kind kind, uint64_t id);

/* The context is gone and took its own along. */
void gp_unpooled_forget_context(const struct gp_context *context);
