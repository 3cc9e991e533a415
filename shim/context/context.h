/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * CUDA contexts as the pools see them: one gp_context, with its pools, for each context that has allocated memory.
 *
 * A context may end in any thread at any time. Every driver call that gpupool makes in a context is made between
 * gp_context_enter and gp_context_leave. The end takes the same lock exclusively (context_end.c).
 */

#include "pool/pool.h"
#include "shim/driver/cuda_abi.h"
#include "region_pool.h"
#include "shim/base/rwlock.h"
#include "context_seen.h"
#include "device.h"

/* There is one pinned pool for each combination of flags (3 bits), and one for cuMemAllocHost. */
enum { GP_PINNED_KINDS = 9, GP_PINNED_ALLOC_HOST = 8 };

struct gp_debug_io;

enum gp_context_state {
	GP_CONTEXT_DEAD = 1,
	GP_CONTEXT_ENDING = 2, /* it may end: the driver has not answered yet */
	GP_CONTEXT_BROKEN = 4, /* lost_to is set: pooling has ended, and all calls go to the driver */
};

struct gp_context {
	CUcontext handle;
	unsigned long long id; /* never reused, unlike handles */
	struct gp_device *device;
	bool is_primary;
	_Atomic unsigned states; /* enum gp_context_state */
	_Atomic int lost_to;     /* the sticky error, after which the driver refuses frees, too; or 0 */
	_Atomic unsigned users;  /* may use the pools: the table, and calls under way */
	_Atomic unsigned refs;   /* keep this structure: all users together, each pool, each record */
	struct gp_rwlock life;
	struct gp_pool *pool; /* for allocations outside of regions */
	struct gp_region_pools regions;
	struct gp_mutex pinned_lock;
	struct gp_pool *pinned[GP_PINNED_KINDS]; /* made when first used */
	_Atomic size_t pitch;                    /* bytes that pitches are multiples of; 0: not known yet */

	struct gp_mutex undue_lock;       /* held across records that later work must not wait for, and GPU waits */
	CUevent undue;                    /* event of the last such record, or NULL */
	CUevent events[GP_FENCE_SLOTS];   /* made when first used */
	_Atomic(CUstream) release_stream; /* private: memory is freed here, after the fences that it waits for */
	bool can_release_behind;
	bool is_rdma_capable;                   /* whether mapped memory is (backend_mapping.c) */
	_Atomic enum gp_config_backend backend; /* where its segments come from (backend_supply.c) */
	_Atomic unsigned downgraded;            /* GP_DOWNGRADED_...: downgrades that are not logged yet */
	_Atomic(CUmemoryPool) async_pool;       /* async.c; both are created at first use */
	_Atomic(CUstream) async_stream;
	struct gp_context *next_ended;          /* context_end.c */
	_Atomic(struct gp_debug_io *) debug_io; /* debug_io.c */
};

/* True if the context is in any of these states. */
static inline bool gp_context_is(const struct gp_context *context, unsigned states)
{
	return (atomic_load(&context->states) & states) != 0;
}

static inline bool gp_context_backend_is(const struct gp_context *context, enum gp_config_backend backend)
{
	return atomic_load_explicit(&context->backend, memory_order_relaxed) == backend;
}

/*
 * Functions of the layer that has the pools' backends (backend_device.c), for a context:
 *
 *   pool_new         creates its first pool. 0 or -ENOMEM. The pool holds a reference to the context until its end
 *   sibling_new      creates a further pool, which shares the fences of the first
 *   free_before_end  frees the memory that would outlive the context, which is about to end and whose lock is held
 *                    exclusively. Returns false if there is none
 */
struct gp_context_backend {
	int (*pool_new)(struct gp_context *context, struct gp_pool **ret_pool);
	int (*sibling_new)(struct gp_context *context, struct gp_pool **ret_pool);
	bool (*free_before_end)(struct gp_context *context);
};

/*
 * Functions of a module that keeps something for a context. ended is called when the context has ended, with its lock
 * held exclusively; the context is NULL if it had no pool. freed is called before the context's structure is freed.
 * Either function may be NULL. A watcher lies in memory that lasts.
 */
struct gp_context_watcher {
	void (*ended)(CUcontext handle, struct gp_context *context);
	void (*freed)(struct gp_context *context);
	struct gp_context_watcher *next;
};

/* Set up the contexts, and register what other modules do for them. To be called before there is a context. */
void gp_contexts_start(void);
void gp_context_set_backend(const struct gp_context_backend *backend);
void gp_context_watch(struct gp_context_watcher *watcher);

/* Calls the modules that watch contexts, for a context that has ended. */
void gp_context_tell_end(CUcontext handle, struct gp_context *context);

/* Creates a further pool for a context that has one. 0 or -ENOMEM. */
int gp_context_sibling_new(struct gp_context *context, struct gp_pool **ret_pool);

/* Frees the memory that would outlive the context: gp_context_backend.free_before_end. */
bool gp_context_free_before_end(struct gp_context *context);

/* Returns the current context, with a use that the caller must put. NULL if gpupool serves none. */
struct gp_context *gp_context_current(void);
struct gp_context *gp_context_use(struct gp_context *context);
void gp_context_put(struct gp_context *context);

/* A reference keeps the structure, but not the pools. */
void gp_context_ref(struct gp_context *context);
void gp_context_unref(struct gp_context *context);

/* Returns false if the context is dead. Otherwise it stays alive until gp_context_leave. */
bool gp_context_enter(struct gp_context *context);
void gp_context_leave(struct gp_context *context);

/*
 * The same for callers that hold a lock which the context's end takes: does not wait for an end under way. 1: entered;
 * 0: dead; -1: it may be ending.
 */
int gp_context_try_enter(struct gp_context *context);

/* True if the context, or a green context of it, is current in the calling thread. */
bool gp_context_is_current(const struct gp_context *context);

/* True if the thread's current context has been destroyed: it stays current after that. */
bool gp_context_is_current_gone_slow(void);

static inline bool gp_context_is_current_gone(void)
{
	return gp_unlikely(atomic_load_explicit(&gp_contexts_have_ended, memory_order_relaxed)) &&
	       gp_context_is_current_gone_slow();
}

/* Calls back for each live context, with a use held. The caller may hold no lock. */
void gp_context_each(void (*fn)(void *arg, struct gp_context *context), void *arg);

/* Calls back for each pinned pool that the context has, with a reference held. */
void gp_context_each_pinned(struct gp_context *context, void (*fn)(void *arg, struct gp_pool *pool), void *arg);

/*
 * Returns a live context, with a use: by its handle, or for a NULL handle the primary one of the device. NULL if it
 * has no pool.
 */
struct gp_context *gp_table_find(CUcontext handle, CUdevice device);

/*
 * Ends under way. Until the driver's answer shows whether a context has ended, the owner of its memory is unknown: an
 * address may already belong to the program again.
 */
extern _Atomic unsigned gp_contexts_ending;

/* For the end of contexts: no context enters the table between close and open. Removing a context puts its use. */
void gp_table_close(void);
void gp_table_open(void);
void gp_table_remove(struct gp_context *context);

/*
 * Sets in a pool that was just published everything that was set in all pools before: the limit of pending bytes,
 * serial mode, reuse only after completion, and whole driver allocations.
 */
void gp_context_catch_up(struct gp_context *context, struct gp_pool *pool);

/*
 * From now on reuse needs completion in every context, unless GPUPOOL_REUSE=ordered. Waits once for earlier
 * reuse.
 */
void gp_context_need_completion(const char *why);

/* Called when a capture has ended: catches up on a wait of gp_context_need_completion that the capture forbade. */
void gp_context_settle_completion(void);

/* From now on every new block of device memory is a whole driver allocation, which can be exported. */
void gp_context_need_whole(const char *why);
