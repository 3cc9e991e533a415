/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * The allocations that gpupool counts and passes through to the driver. They are charged to the device's limit.
 * shim/README.md lists how the memory of each function is treated.
 */

#include "shim/context/context.h"

enum gp_unpooled_kind {
	GP_UNPOOLED_POINTER, /* freed by cuMemFree or cuMemFreeAsync */
	GP_UNPOOLED_ARRAY,
	GP_UNPOOLED_MIPMAPPED,
	GP_UNPOOLED_HANDLE, /* memory of cuMemCreate; each handle and each mapping is a reference */
};

struct gp_unpooled_info {
	enum gp_unpooled_kind kind;
	uint64_t id, bytes;
	int device;
	uint32_t module; /* the calling module: trace/module.h */
};

/* Watches the ends of contexts. */
void gp_unpooled_start(void);

/*
 * Adds an allocation with one reference. Its bytes have been charged to the device's budget. ends_with: the context at
 * whose end the driver frees the memory, or NULL.
 */
void gp_unpooled_add(struct gp_device *device, const struct gp_unpooled_info *info, const struct gp_context *ends_with);

/* A reference that is being dropped by a driver call. */
struct gp_unpooled_drop {
	enum gp_unpooled_kind kind;
	uint64_t id;
	struct gp_unpooled_entry *last; /* set if it was the last reference; no other thread can find the entry */
	bool is_known;
};

/*
 * Drop a reference, in two steps around the driver's free. The first step hides the allocation, because another thread
 * may receive the same id as soon as the driver has freed it. The second one uncharges the memory if it was the last
 * reference, or makes the reference valid again if the driver refused the free. Unknown ids are ignored.
 */
struct gp_unpooled_drop gp_unpooled_begin_drop(enum gp_unpooled_kind kind, uint64_t id);
void gp_unpooled_end_drop(struct gp_unpooled_drop drop, bool is_freed);

/* As gp_unpooled_end_drop after a free, for memory that stays: it is charged until the caller uncharges it. */
void gp_unpooled_end_drop_charged(struct gp_unpooled_drop drop);

bool gp_unpooled_is_known(enum gp_unpooled_kind kind, uint64_t id);

/* Adds a reference. Returns false if the id is unknown. */
bool gp_unpooled_retain(enum gp_unpooled_kind kind, uint64_t id);

/* Return the number of allocations, and call back for each, with a lock held. */
size_t gp_unpooled_count(void);
void gp_unpooled_each(void (*fn)(void *arg, const struct gp_unpooled_info *info), void *arg);
