/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * CUDA contexts as the pools see them: one gp_context for each context that allocated something, with its pools.
 *
 * A context may end in any thread at any time. Everything that gpupool calls in a context happens between
 * gp_context_enter and gp_context_leave; the end takes the same lock alone, marks the context dead and drops its
 * pools before the driver destroys anything.
 */

#include "../pool/pool.h"
#include "cuda_abi.h"
#include "rwlock.h"
#include "state.h"

/* Pinned memory is kept apart by its flags (3 bits), and cuMemAllocHost's from cuMemHostAlloc's. */
enum { GP_PINNED_KINDS = 9, GP_PINNED_ALLOC_HOST = 8 };

struct gp_pinned;

struct gp_context {
	CUcontext handle;
	unsigned long long id; /* never used twice, as handles are */
	struct gp_device *device;
	bool is_primary;
	_Atomic bool is_dead;
	_Atomic bool is_broken; /* the driver reports an error that stays: the program talks to it alone */
	_Atomic unsigned users; /* who may use the pools: the table, and calls under way */
	_Atomic unsigned refs;	/* who needs the memory of this: all users together, each pool, each record */
	struct gp_rwlock life;
	struct gp_pool *pool;
	struct gp_mutex pinned_lock;
	struct gp_pinned *pinned[GP_PINNED_KINDS]; /* made when first used */
	_Atomic size_t pitch;			   /* bytes that pitches are multiples of; 0: not known yet */

	/* backend_device.c */
	CUevent events[GP_FENCE_SLOTS]; /* made when first used */
	_Atomic(CUstream) release_stream; /* private: what is given back is ordered here and nowhere else */
	bool can_release_behind;
};

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

/* Calls back for each live context, with a use held; not with any lock. */
void gp_context_each(void (*fn)(void *arg, struct gp_context *context), void *arg);

/*
 * Ends contexts: the one with that handle, or the primary one of a device. is_certain: it will be gone whatever
 * happens, so it is dropped before the driver is called. Otherwise the driver is called with the context's lock held
 * alone, and it is dropped if the driver then says that the primary context is not active any more.
 */
struct gp_context_end {
	CUcontext handle; /* or NULL */
	CUdevice device;
	bool is_certain;
	CUresult (*driver)(const struct gp_context_end *end);
};

CUresult gp_context_end(const struct gp_context_end *end);

/* A program can work in this context: a second one makes somebody else the possible first user of memory. */
void gp_context_seen(CUcontext handle);

/* The primary context of a device. */
void gp_context_seen_primary(CUcontext handle, CUdevice device);

/* A context that stands for a green context: its memory belongs to another, and it is left to the driver. */
void gp_context_seen_green(CUcontext handle);
