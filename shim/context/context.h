/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * CUDA contexts. Each context in which memory was allocated has a struct gp_context, with its pools.
 *
 * Any thread may end a context at any time. So gpupool makes its driver calls in a context between gp_context_enter and
 * gp_context_leave, which hold a lock shared. The end of the context takes the same lock exclusively (context_end.c).
 * For fence calls, the lock of the context's fences has this role (backend_device.c).
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
	GP_CONTEXT_ENDING = 2, /* a driver call is under way that may end the context */
	GP_CONTEXT_BROKEN = 4, /* lost_to is set: pooling has ended, and all calls go to the driver */
};

/* struct gp_context.export_result; no result of the driver */
enum { GP_EXPORT_UNTRIED = -1 };

/* A mapped chunk of memory, and how the context has it. */
enum { GP_FIRST_CHUNK_NONE, GP_FIRST_CHUNK_KEPT, GP_FIRST_CHUNK_TAKEN };

struct gp_first_chunk {
	uint64_t addr, bytes, handle;
	uint64_t devices; /* that have access: bits as of gp_mapping_devices */
};

struct gp_context {
	CUcontext handle;
	unsigned long long id; /* never reused, unlike handles */
	struct gp_device *device;
	bool is_primary;
	_Atomic unsigned states; /* enum gp_context_state */
	_Atomic int lost_to;     /* the sticky error, after which the driver refuses all calls, even frees; 0: none */
	_Atomic unsigned users;  /* uses, which keep the pools: one of the table, and those of calls under way */
	_Atomic unsigned refs; /* references that keep this structure: one of all users, one of each pool, and others */
	struct gp_rwlock life; /* held shared between gp_context_enter and gp_context_leave */
	struct gp_pool *pool;  /* the main pool: for allocations outside of regions */
	struct gp_region_pools regions;
	struct gp_mutex pinned_lock;
	struct gp_pool *pinned[GP_PINNED_KINDS]; /* created at first use */
	_Atomic size_t pitch;                    /* every pitch is a multiple of these bytes; 0: not known yet */

	struct gp_mutex undue_lock;       /* held across undue records and across GPU waits (fence_call.c) */
	CUevent undue;                    /* event of the last record that later work must not wait for, or NULL */
	CUevent events[GP_FENCE_SLOTS];   /* created at first use */
	_Atomic(CUstream) release_stream; /* private: waits for fences, and then frees memory */
	_Atomic(CUstream) sleep_stream;   /* for backend_sleep.c, as the next */
	CUevent sleep_events[2];
	bool can_release_behind;
	bool is_rdma_capable;          /* GPUDirect RDMA can access mapped memory (backend_mapping.c) */
	bool is_shareable;             /* mapped memory was made for exports by file descriptors, likewise */
	bool can_map;                  /* it was tried for a pool of allocations in stream order */
	_Atomic bool syncs_memops;     /* the program wants it for mapped memory (memops.h) */
	_Atomic int export_result;     /* of the driver, once an export was tried (gp_mapping_try_export) */
	_Atomic int first_chunk_state; /* GP_FIRST_CHUNK_...; this and the next for first_chunk.c */
	struct gp_first_chunk first_chunk;
	_Atomic enum gp_config_backend backend; /* where its segments come from (backend_supply.c) */
	_Atomic unsigned downgraded;            /* GP_DOWNGRADED_...: downgrades that are not logged yet */
	_Atomic(CUmemoryPool) async_pool;       /* this and the next for async.c; created at first use */
	_Atomic(CUstream) async_stream;
	struct gp_context *next_ended;          /* for context_end.c */
	_Atomic(struct gp_debug_io *) debug_io; /* for debug_io.c */
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
 * Functions that backend_device.c provides for contexts:
 *
 *   pool_new         creates the context's first pool. Returns 0 or -ENOMEM. The pool holds a reference to the context
 *                    until the pool ends
 *   sibling_new      creates a further pool, which shares the fences of the first. is_streamed: for allocations in
 *                    stream order, of the kind vmm. Then only one thread may call it at a time, and -ENOTSUP means that
 *                    the driver cannot map memory
 *   free_before_end  frees memory that would outlive the context. To be called when the context is about to end, with
 *                    its lock held exclusively. Returns false if there is no such memory
 */
struct gp_context_backend {
	int (*pool_new)(struct gp_context *context, struct gp_pool **ret_pool);
	int (*sibling_new)(struct gp_context *context, bool is_streamed, struct gp_pool **ret_pool);
	bool (*free_before_end)(struct gp_context *context);
};

/*
 * Functions of a module that keeps data for contexts. Each may be NULL. A watcher must exist for the life of the
 * process.
 *
 *   ended      a context ends: with the context, whose lock is held exclusively, or with NULL where only the handle is
 *              known. It may be called both ways for one end
 *   after_end  the driver has ended a context that was known: no work uses memory any more
 *   freed      called before the context's structure is freed
 */
struct gp_context_watcher {
	void (*ended)(CUcontext handle, struct gp_context *context);
	void (*after_end)(struct gp_context *context);
	void (*freed)(struct gp_context *context);
	struct gp_context_watcher *next;
};

/* Set up the contexts, and register what other modules do for them. To be called before there is a context. */
void gp_contexts_start(void);
void gp_context_set_backend(const struct gp_context_backend *backend);
void gp_context_watch(struct gp_context_watcher *watcher);

/* Call `ended`, or `after_end`, of all watchers. */
void gp_context_tell_end(CUcontext handle, struct gp_context *context);
void gp_context_tell_after_end(struct gp_context *context);

/* Creates a further pool for a context that has one: gp_context_backend.sibling_new. Returns 0, -ENOMEM or -ENOTSUP. */
int gp_context_sibling_new(struct gp_context *context, bool is_streamed, struct gp_pool **ret_pool);

/* Frees the memory that would outlive the context: gp_context_backend.free_before_end. */
bool gp_context_free_before_end(struct gp_context *context);

/*
 * Returns the current context, with a use that the caller must put. NULL if gpupool cannot serve the current context.
 */
struct gp_context *gp_context_current(void);
struct gp_context *gp_context_use(struct gp_context *context);

/* Likewise, a context on the device: the current one, or else any. NULL if there is none. */
struct gp_context *gp_context_use_on(const struct gp_device *device);

/*
 * For an end, after gp_table_close: waits until no thread is in gp_context_adopt (adopt.h). Such a thread counts itself
 * here.
 */
extern _Atomic unsigned gp_contexts_adopting;
void gp_context_await_adoption(void);
void gp_context_put(struct gp_context *context);

/* A reference keeps the structure, but not the pools. */
void gp_context_ref(struct gp_context *context);
void gp_context_unref(struct gp_context *context);

/* Returns false if the context is dead. Otherwise it stays alive until gp_context_leave. */
bool gp_context_enter(struct gp_context *context);
void gp_context_leave(struct gp_context *context);

/*
 * Like gp_context_enter, but does not wait for an end under way. For callers that hold a lock which the end also takes.
 * Returns 1 (entered), 0 (the context is dead) or -1 (the context may be ending).
 */
int gp_context_try_enter(struct gp_context *context);

/* True if the context, or a green context of it, is current in the calling thread. */
bool gp_context_is_current(const struct gp_context *context);

/* True if the thread's current context has been destroyed. A destroyed context stays current. */
bool gp_context_is_current_gone_slow(void);

static inline bool gp_context_is_current_gone(void)
{
	return gp_unlikely(atomic_load_explicit(&gp_contexts_have_ended, memory_order_relaxed)) &&
	       gp_context_is_current_gone_slow();
}

/*
 * Calls back for each live context, with a use held. The caller may hold no lock but that of the turns in hook_peer.c:
 * the last use ends pools.
 */
void gp_context_each(void (*fn)(void *arg, struct gp_context *context), void *arg);

/*
 * Calls back for each pool of all live contexts: with the number of its device, or with -1 for pinned memory. Waits for
 * no lock, so that even a signal handler may call it, and fn must not wait either. Returns false if a lock is held, or
 * once fn has returned false.
 */
bool gp_context_try_each_pool(bool (*fn)(void *arg, struct gp_pool *pool, int device), void *arg);

/* Calls back for each pinned pool that the context has, with a reference held. */
void gp_context_each_pinned(struct gp_context *context, void (*fn)(void *arg, struct gp_pool *pool), void *arg);

/*
 * Returns a live context, with a use: by its handle, or for a NULL handle the device's primary context. NULL if that
 * context has no pool.
 */
struct gp_context *gp_table_find(CUcontext handle, CUdevice device);

/*
 * Number of ends under way. Until the driver has answered whether the context has ended, the owner of an address in its
 * memory is unknown: the program may already have obtained that address again.
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
 * From now on reuse needs completion in every context, unless GPUPOOL_REUSE=ordered. Waits for the blocks that were
 * already reused without it. gp_context_need_completion: since something outside of gpupool's sight may use the memory;
 * gp_context_are_several: since work in another context of the process may use it.
 */
void gp_context_need_completion(const char *why);
void gp_context_are_several(void);

/*
 * Returns why something outside of gpupool's sight may use memory of pools: the first reason given to
 * gp_context_need_completion, also if reuse ignores it. NULL: nothing does.
 */
const char *gp_context_why_shared(void);

/* To be called when a capture has ended: makes the wait of gp_context_need_completion that the capture prevented. */
void gp_context_settle_completion(void);

/* From now on every new block of device memory is a whole driver allocation, which can be exported. */
void gp_context_need_whole(const char *why);
