/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Allocations and frees of the pool, for the hooks of device and of pinned memory. They include what goes with a call:
 * recordings, GPUPOOL_DEBUG, captures, sleep, and further attempts after out-of-memory.
 */

#include "shim/context/context.h"
#include "shim/process.h"

struct gp_tcache;

/* True if gpupool serves calls in the context, which may be NULL. */
static inline bool gp_memory_serves(const struct gp_context *context)
{
	if (context)
		gp_process_start();
	return context && gp_likely(!gp_context_is(context, GP_CONTEXT_BROKEN));
}

/*
 * Allocates from the pool, past the thread's cache. device: that of the memory, or GP_OOM_HOOK_PINNED. On
 * out-of-memory, tries again if the program's hook asks for it. Returns what gp_pool_alloc returns.
 */
int gp_memory_alloc(
	struct gp_pool *pool, int device, uint64_t bytes, const struct gp_alloc_options *options, uint64_t *ret_addr);

/* Likewise: device memory, from the pool of the thread's region. */
int gp_memory_alloc_device(
	struct gp_context *context, uint64_t bytes, const struct gp_alloc_options *options, uint64_t *ret_addr);

/* Likewise: through the thread's cache. was_tried: the fast path has looked into the cache without success. */
int gp_memory_alloc_cached(struct gp_tcache *tcache, bool was_tried, uint64_t bytes,
	const struct gp_alloc_options *options, uint64_t *ret_addr);

/*
 * Translates a result of gp_pool_alloc to the driver's. Returns true if *ret_r is the answer, false if the driver
 * must be called.
 */
bool gp_memory_is_answered(int r, CUresult *ret_r);

/*
 * Returns true if the call must write its outputs. On out-of-memory, but on no other error, the driver writes a pointer
 * of 0, and the pitch (measured).
 */
static inline bool gp_memory_writes_outputs(CUresult r)
{
	return gp_likely(r == CUDA_SUCCESS) || r == CUDA_ERROR_OUT_OF_MEMORY;
}

/*
 * To be called before a free: waits for an end that may concern the address, and with GPUPOOL_SYNC_FREE for the work of
 * the block's context. *mode becomes GP_FREE_SYNCED after such a wait. A result other than 0 is the error of the free.
 */
CUresult gp_memory_wait_before_free(struct gp_addrmap *map, uint64_t addr, enum gp_free_mode *mode);

/* Frees to the pool. is_waited: after a wait for the work of the block's context. Returns what gp_pool_free returns. */
int gp_memory_release(struct gp_addrmap *map, uint64_t addr, bool is_waited, enum gp_free_mode mode);

/* Frees device memory on the stream with that number (context/stream.h). Not while GPUPOOL_DEBUG is set. */
int gp_memory_release_on(CUdeviceptr ptr, uint64_t stream);

/* Adds a free in stream order to the recording. stream: its number, or 0. */
void gp_memory_note_free_on(CUdeviceptr ptr, uint64_t stream);

/*
 * Sets the thread's deferred error: the thread has freed ptr, and the runtime has yet to learn of the error r of that
 * free. The hook of the driver's free returns the error for the same address, instead of freeing it a second time. r =
 * 0 clears the error.
 */
void gp_memory_defer_error(const void *ptr, CUresult r);

/* True if the thread has freed ptr already, and only its error has to be returned. */
bool gp_memory_has_deferred_error(const void *ptr, CUresult *ret_r);
