/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* The pools' backends over the CUDA driver: device memory of a context, and pinned memory of its owner. */

#include "shim/context/context.h"
#include "shim/context/serial.h"

/*
 * Creates a pool for the context's device memory. 0 or -ENOMEM. The pool holds a reference to the context until its
 * end.
 */
int gp_device_pool_new(struct gp_context *context, struct gp_pool **ret_pool);

/* Creates a further pool for a context that has one. It shares the fences of the first. */
int gp_device_sibling_new(struct gp_context *context, struct gp_pool **ret_pool);

/*
 * backend_mapping.c: virtual memory for the kind vmm. Setup tries whether the driver can map memory for the
 * context. It returns 0 and the granule of sizes and addresses, or -ENOTSUP.
 */
extern const struct gp_mapping_ops gp_mapping_ops;
int gp_mapping_setup(struct gp_context *context, uint64_t *ret_granule);

/* Asks the driver the same without mapping anything: 0 and the granule, or -ENOTSUP. */
int gp_mapping_granule(struct gp_context *context, uint64_t *ret_granule);

/*
 * backend_supply.c: the driver's allocator that the context's segments come from. It is set up before another
 * thread can see the context. If the configured one is not available, the first allocation logs that.
 * gp_backend_take makes the driver's call, between gp_context_enter and gp_context_leave.
 */
enum { GP_AMISS_KIND = 1, GP_AMISS_BACKEND = 2 }; /* downgraded, and not yet logged */
void gp_backend_setup(struct gp_context *context);
void gp_backend_tell_slow(struct gp_context *context);
CUresult gp_backend_take(struct gp_context *context, CUdeviceptr *ptr, uint64_t bytes);
const char *gp_backend_name(enum gp_config_backend backend);

/* Returns the driver's allocator that the memory at an address in a pool came from. */
enum gp_config_backend gp_backend_of(uint64_t addr);

static inline bool gp_backend_is(struct gp_context *context, enum gp_config_backend backend)
{
	return atomic_load_explicit(&context->backend, memory_order_relaxed) == backend;
}

/* Frees one driver allocation that gpupool made, without waiting where that is possible. */
void gp_device_give_back(struct gp_context *context, CUdeviceptr ptr);

/* Returns the bytes that the driver could still allocate on the context's device, or UINT64_MAX if unknown. */
uint64_t gp_device_available(struct gp_context *context);

/* Returns the context's pool of pinned memory with these flags (0..7, or GP_PINNED_ALLOC_HOST), or NULL. */
struct gp_pool *gp_pinned_get(struct gp_context *context, unsigned kind);
struct gp_pool *gp_pinned_pool(const struct gp_pinned *pinned);

/* Returns the context that owns a pool of pinned memory. */
struct gp_context *gp_pinned_context(const struct gp_pool *pool);

/* Calls back for each pinned pool that the context has, with a reference held. */
void gp_pinned_each(struct gp_context *context, void (*fn)(void *arg, struct gp_pool *pool), void *arg);

/*
 * Returns the counter of submissions for a pool of that kind: a free after which nothing was submitted then needs
 * no driver call. NULL for pools that must call the driver at each free, as that call may be the first to return an
 * error.
 */
static inline struct gp_submissions *gp_backend_submissions(enum gp_kind kind)
{
	return kind == GP_KIND_NONE || gp_config_debug_is_on(&gp_state.config.debug) ? NULL : &gp_submitted;
}

/* Creates the event of a context's slot at first use. To be called between gp_context_enter and gp_context_leave. */
int gp_backend_event(struct gp_context *context, CUevent *event);

/*
 * Records all work of the context in the event, or waits for that work if the driver cannot record it. To be called
 * between gp_context_enter and gp_context_leave. is_due: later work of the context may be made to wait for this
 * record.
 */
int gp_backend_record(struct gp_context *context, CUevent event, bool is_due);
bool gp_backend_record_waits(void *unused);
