/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* The pools' backends over the CUDA driver: device memory of a context, and pinned memory of its owner. */

#include "context.h"
#include "in_order.h"

/* A pool of the context's device memory. 0, -ENOMEM. The pool refers to the context until it is gone. */
int gp_device_pool_new(struct gp_context *context, struct gp_pool **ret_pool);

/* Another for a context that has one, whose fences it shares. */
int gp_device_sibling_new(struct gp_context *context, struct gp_pool **ret_pool);

/*
 * backend_mapping.c: what the kind vmm needs. What is set up is the context's answer to whether the driver can do it:
 * 0 and the granule of sizes and addresses, or -ENOTSUP.
 */
extern const struct gp_mapping_ops gp_mapping_ops;
int gp_mapping_setup(struct gp_context *context, uint64_t *ret_granule);

/* Asks the driver about that without mapping anything: 0 and the granule, or -ENOTSUP. */
int gp_mapping_granule(struct gp_context *context, uint64_t *ret_granule);

/*
 * backend_supply.c: what the context's segments are. Set up before anybody knows the context; what could not be had is
 * told at the first allocation. take makes the driver's call, between enter and leave.
 */
enum { GP_AMISS_KIND = 1, GP_AMISS_BACKEND = 2 }; /* it is not what it should have been, and nobody has been told */
void gp_backend_setup(struct gp_context *context);
void gp_backend_tell_slow(struct gp_context *context);
CUresult gp_backend_take(struct gp_context *context, CUdeviceptr *ptr, uint64_t bytes);
const char *gp_backend_name(enum gp_config_backend backend);

/* What the memory at an address of a pool's is. */
enum gp_config_backend gp_backend_of(uint64_t addr);

static inline bool gp_backend_is(struct gp_context *context, enum gp_config_backend backend)
{
	return atomic_load_explicit(&context->backend, memory_order_relaxed) == backend;
}

/* Gives one driver allocation of gpupool's own back, without waiting where that is possible. */
void gp_device_give_back(struct gp_context *context, CUdeviceptr ptr);

/* What the driver could still give on the context's device, or UINT64_MAX where unknown. */
uint64_t gp_device_available(struct gp_context *context);

/* The pool of the context's pinned memory with these flags (0..7, or GP_PINNED_ALLOC_HOST), or NULL. */
struct gp_pool *gp_pinned_get(struct gp_context *context, unsigned kind);
struct gp_pool *gp_pinned_pool(const struct gp_pinned *pinned);

/* The context that a pool of pinned memory belongs to. */
struct gp_context *gp_pinned_context(const struct gp_pool *pool);

/* Calls back for each pinned pool that the context has, with a reference held. */
void gp_pinned_each(struct gp_context *context, void (*fn)(void *arg, struct gp_pool *pool), void *arg);

/*
 * What tells a pool of that kind that nothing was submitted, so that a free needs no call of the driver's; NULL where
 * each is to make one, as it may be the first to be told of an error.
 */
static inline struct gp_work *gp_backend_work(enum gp_kind kind)
{
	return kind == GP_KIND_NONE || gp_config_debug_is_on(&gp_state.config.debug) ? NULL : &gp_submitted;
}

/* The event of a context's slot; made when first asked for. Between enter and leave. */
int gp_backend_event(struct gp_context *context, CUevent *event);

/*
 * Records all work of the context in the event; where the driver cannot, waits for it. Between enter and leave. is_due:
 * later work of the context may be made to wait for that.
 */
int gp_backend_record(struct gp_context *context, CUevent event, bool is_due);
bool gp_backend_record_waits(void *unused);
