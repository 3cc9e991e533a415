/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* The end of contexts. */

#include "context.h"

/* A driver call that ends a context, or may end it. */
struct gp_context_end {
	CUcontext handle; /* NULL: the primary context of the device */
	CUdevice device;
	/* When the context ends: */
	enum gp_end_when {
		GP_END_PERHAPS,    /* if the primary context is inactive, or a new one, after the call */
		GP_END_ON_SUCCESS, /* the same, and also if the call succeeds */
		GP_END_SURELY,     /* always, even if the call returns an error */
	} when;
	CUresult (*driver)(const struct gp_context_end *end);
};

/* True if the device has an active primary context. */
bool gp_context_is_primary_active(CUdevice device);

/* True if memory of the device may outlive the context (survivor.h). It does unless it is asleep. */
bool gp_context_end_may_leave_survivors(const struct gp_context_end *end, CUdevice *ret_device);

/* Makes the call. If the context ends, drops its pools. Returns the driver's result. */
CUresult gp_context_end(const struct gp_context_end *end);

void gp_context_settle_slow(struct gp_addrmap *map, uint64_t addr);

/* To be called before an address is looked up in a map: waits for an end that may concern the address. */
static inline void gp_context_settle(struct gp_addrmap *map, uint64_t addr)
{
	if (gp_unlikely(atomic_load_explicit(&gp_contexts_ending, memory_order_relaxed)))
		gp_context_settle_slow(map, addr);
}

/* To be called before new memory enters a map: waits until no memory of an ended context is left at its addresses. */
void gp_context_make_room(struct gp_addrmap *map, uint64_t addr, uint64_t bytes);
