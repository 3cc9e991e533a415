/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* What the driver's functions and the runtime's have in common (hook_memory.c, hook_runtime.c). */

#include <errno.h>

#include "../pool/pool_control.h"
#include "caller.h"
#include "capture.h"
#include "origin.h"
#include "real.h"
#include "scope.h"
#include "thread.h"

/*
 * The thread's cache for the current context, as nearly every call finds it, with nothing that has to be done besides,
 * and nothing unusual of that kind. NULL says nothing. Calls nobody.
 */
static inline struct gp_thread_cache *gp_memory_place_at_hand(unsigned unusual)
{
	struct gp_thread *self = gp_thread_self;

	if (gp_unlikely(!self || !self->current || !gp_thread_is_usable(&self->caches[0], self->current)))
		return NULL;
	return gp_unlikely(gp_is_unusual(unusual)) ? NULL : &self->caches[0];
}

/*
 * What nearly every call of the driver's functions is: of what the thread has at hand. -ENOENT: hook_memory.c has to
 * see. errno stays as it is.
 */
static inline int at_hand_cuMemAlloc_v2(CUdeviceptr *ptr, size_t bytes)
{
	const struct gp_thread_cache *place = gp_memory_place_at_hand(GP_UNUSUAL_TO_ALLOC);
	uint64_t addr;

	if (gp_unlikely(!place || !ptr))
		return -ENOENT;
	addr = gp_tcache_take(place->tcache, bytes, gp_caller_now());
	if (gp_unlikely(!addr))
		return -ENOENT;
	*ptr = addr;
	return CUDA_SUCCESS;
}

/* What is freed during a capture goes by its own rules. */
static inline struct gp_thread_cache *gp_memory_place_to_free(void)
{
	return gp_likely(gp_capture_is_none()) ? gp_memory_place_at_hand(GP_UNUSUAL_TO_FREE) : NULL;
}

static inline int at_hand_cuMemFree_v2(CUdeviceptr ptr)
{
	const struct gp_thread_cache *place = gp_memory_place_to_free();

	return gp_likely(place) ? gp_tcache_put(place->tcache, ptr) : -ENOENT;
}

/* -ENOENT if the thread's cache for the current context has no place for it, else what cuMemFree returns. */
static inline int gp_memory_free_to(struct gp_thread_cache *cache, CUdeviceptr ptr)
{
	if (!gp_capture_is_none() || gp_is_unusual(GP_UNUSUAL_WATCHED | GP_UNUSUAL_WAITING))
		return -ENOENT;
	gp_origin_freed(ptr);
	return gp_tcache_put(cache->tcache, ptr);
}

/* Out of the pool, without anybody's being told. As gp_pool_alloc. */
static inline int gp_memory_alloc_plain(struct gp_pool *pool, uint64_t bytes, uint32_t caller, uint64_t *ret_addr)
{
	return gp_scope_no_caches ? gp_pool_alloc_uncached(pool, bytes, caller, ret_addr)
				  : gp_pool_alloc(pool, bytes, caller, ret_addr);
}

/* The driver's free, and that of pinned memory. GP_E_FOREIGN: not ours, nothing was done; else what they return. */
int gp_memory_free(CUdeviceptr ptr);
int gp_memory_free_host(void *ptr);

/* Pinned memory out of what the pool has at hand: see gp_pool_alloc_hit. kind: as gp_pinned_get. */
bool gp_memory_alloc_host_hit(void **ptr, size_t bytes, unsigned kind, uint32_t caller);

/*
 * The thread has freed this, and the answer is an error that its runtime does not know of yet: the driver's free of the
 * same address is going to return it, until it is 0 again. A free that is done must not be done twice.
 */
void gp_memory_owe(const void *ptr, CUresult r);
