/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Allocations that gpupool counts and passes through: managed memory, the driver's stream-ordered pools, arrays, and
 * physical memory. They are charged to the device's limit, and their out-of-memory goes through the retry rounds, since
 * the cache may have caused it. README.md lists which function's memory is what.
 */

#include "context.h"

enum gp_unpooled_kind {
	GP_UNPOOLED_POINTER, /* freed by cuMemFree or cuMemFreeAsync */
	GP_UNPOOLED_ARRAY,
	GP_UNPOOLED_MIPMAPPED,
	GP_UNPOOLED_HANDLE, /* kept by references: handles and mappings */
};

/* Whose memory it is, if not that of the device with the number. */
enum {
	GP_UNPOOLED_CURRENT = -1, /* the current context's device */
	GP_UNPOOLED_HOST = -2,	  /* no device's: not counted */
};

enum gp_unpooled_end {
	GP_UNPOOLED_STAYS,	       /* until it is freed */
	GP_UNPOOLED_ENDS_WITH_CONTEXT,
	GP_UNPOOLED_ENDS_WITH_PRIMARY, /* with the current context, if that is a primary one */
};

/* One allocation under way; call() makes the driver's own call and sets what it returns through its argument. */
struct gp_unpooled {
	enum gp_unpooled_kind kind;
	uint64_t bytes; /* 0: nothing is counted */
	int device;
	enum gp_unpooled_end end;
	CUresult (*call)(void *arg);
	void *arg;
	const uint64_t *id; /* where call() leaves the pointer or handle */
};

/* The driver's result, or out of memory where the limit forbids it. */
CUresult gp_unpooled_alloc(const struct gp_unpooled *allocation);

/* It is being freed, or has a reference less: the last takes it off the account. Unknown ones are ignored. */
void gp_unpooled_forget(enum gp_unpooled_kind kind, uint64_t id);

/* One reference more. False if it is not known. */
bool gp_unpooled_retain(enum gp_unpooled_kind kind, uint64_t id);

/* The context is gone and took its own along. */
void gp_unpooled_forget_context(const struct gp_context *context);

/* How many there are; and each, with a lock held. */
size_t gp_unpooled_count(void);
struct gp_unpooled_info {
	enum gp_unpooled_kind kind;
	uint64_t id, bytes;
	int device;
	uint32_t caller; /* caller.h */
};
void gp_unpooled_each(void (*fn)(void *arg, const struct gp_unpooled_info *info), void *arg);
