/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * CUDA contexts as the pools see them: one gp_context for each context that allocated something, with its pools.
 *
 * A context may end in any thread at any time. Everything that gpupool calls in a context happens between
 * gp_context_enter and gp_context_leave; the end takes the same lock alone (context_end.c).
 */

#include "../pool/pool.h"
#include "cuda_abi.h"
#include "region_pools.h"
#include "rwlock.h"
#include "state.h"

/* Pinned memory is kept apart by its flags (3 bits), and cuMemAllocHost's from cuMemHostAlloc's. */
enum { GP_PINNED_KINDS = 9, GP_PINNED_ALLOC_HOST = 8 };

struct gp_debug_io;
struct gp_pinned;

enum gp_context_state {
	GP_CONTEXT_DEAD = 1,
	GP_CONTEXT_ENDING = 2, /* perhaps: the driver has not answered yet */
	GP_CONTEXT_BROKEN = 4, /* lost_to is set: pooling has ended, and the program talks to the driver alone */
};

struct gp_context {
	CUcontext handle;
	unsigned long long id; /* never used twice, as handles are */
	struct gp_device *device;
	bool is_primary;
	_Atomic unsigned states; /* enum gp_context_state */
	_Atomic int lost_to;	/* the sticky error, after which the driver takes no memory back either; or 0 */
	_Atomic unsigned users; /* who may use the pools: the table, and calls under way */
	_Atomic unsigned refs;	/* who needs the memory of this: all users together, each pool, each record */
	struct gp_rwlock life;
	struct gp_pool *pool; /* where no region is meant */
	struct gp_region_pools regions;
	struct gp_mutex pinned_lock;
	struct gp_pinned *pinned[GP_PINNED_KINDS]; /* made when first used */
	_Atomic size_t pitch;			   /* bytes that pitches are multiples of; 0: not known yet */

	struct gp_mutex undue_lock; /* held across a record that is not due, and across every order */
	CUevent undue;		    /* of the last such record, or NULL */
	CUevent events[GP_FENCE_SLOTS]; /* made when first used */
	_Atomic(CUstream) release_stream; /* private: what is given back is ordered here and nowhere else */
	bool can_release_behind;
	bool is_rdma_capable; /* backend_mapping.c: what is mapped is */
	_Atomic enum gp_config_backend backend; /* what its segments are (backend_supply.c) */
	_Atomic unsigned amiss; /* GP_AMISS_... */
	_Atomic(CUmemoryPool) async_pool; /* async.c; both are made when first needed */
	_Atomic(CUstream) async_stream;
	struct gp_context *next_ended; /* context_end.c */
	_Atomic(struct gp_debug_io *) debug_io; /* debug_io.c */
};

/* Whether it is in any of these. */
static inline bool gp_context_is(const struct gp_context *context, unsigned states)
{
	return (atomic_load(&context->states) & states) != 0;
}

/* The current context, with a use that must be put; NULL if there is none that gpupool serves. */
struct gp_context *gp_context_current(void);
struct gp_context *gp_context_use(struct gp_context *context);
void gp_context_put(struct gp_context *context);

/* Keeps the structure, not the pools. */
void gp_context_ref(struct gp_context *context);
void gp_context_unref(struct gp_context *context);

/* False if the context is dead; else it stays alive until gp_context_leave. */
bool gp_context_enter(struct gp_context *context);
void gp_context_leave(struct gp_context *context);

/*
 * The same for who holds a lock that the context's end takes: does not wait for an end under way. 1: entered; 0:
 * dead; -1: about to end, perhaps.
 */
int gp_context_try_enter(struct gp_context *context);

/* Whether the thread works in it, or in a green context of it. */
bool gp_context_is_current(const struct gp_context *context);

/* Whether the thread's current context has been destroyed: it stays current then. */
extern _Atomic bool gp_contexts_have_gone;
bool gp_context_is_current_gone_slow(void);

static inline bool gp_context_is_current_gone(void)
{
	return gp_unlikely(atomic_load_explicit(&gp_contexts_have_gone, memory_order_relaxed)) &&
	       gp_context_is_current_gone_slow();
}

/* Calls back for each live context, with a use held; not with any lock. */
void gp_context_each(void (*fn)(void *arg, struct gp_context *context), void *arg);

/* A live context by its handle, or without one the primary one of a device; with a use. NULL if it has no pool. */
struct gp_context *gp_table_find(CUcontext handle, CUdevice device);

/*
 * Ends under way. Until it is known whether the context of some memory has ended, nobody can tell whose the memory is:
 * an address may be the program's again already.
 */
extern _Atomic unsigned gp_contexts_ending;
void gp_context_settle_slow(struct gp_addrmap *map, uint64_t addr);

/* Before a map is asked about an address. */
static inline void gp_context_settle(struct gp_addrmap *map, uint64_t addr)
{
	if (gp_unlikely(atomic_load_explicit(&gp_contexts_ending, memory_order_relaxed)))
		gp_context_settle_slow(map, addr);
}

/* Before memory that the driver has given enters a map. */
void gp_context_make_room(struct gp_addrmap *map, uint64_t addr, uint64_t bytes);

/* For the end of contexts: nobody enters the table in between; a context leaves it, which puts its use. */
void gp_table_after_fork_child(void);
void gp_table_close(void);
void gp_table_open(void);
void gp_table_remove(struct gp_context *context);

/* Whether there has been a context; and in a forked child: what other threads held is nobody's any more. */
bool gp_context_were_any(void);
void gp_context_after_fork_child(void);

/* context_seen.c. The program can work in it; two make somebody else the possible first user of a context's memory. */
void gp_context_seen(CUcontext handle);
void gp_context_seen_primary(CUcontext handle, CUdevice device);

/* It is gone: nothing is known of that handle any more, but that of a primary context. */
void gp_context_forget(CUcontext handle);

/* The primary context of a device, as the program was given it; or, failing that, as the driver has it. NULL: none. */
CUcontext gp_context_seen_as_primary(CUdevice device);
CUcontext gp_context_primary(CUdevice device);
bool gp_context_is_seen_primary(CUcontext handle);

/* Usage counts: an attached context survives that many detaches. */
void gp_context_attach(CUcontext handle);
void gp_context_detach(CUcontext handle);
bool gp_context_is_attached(CUcontext handle);
