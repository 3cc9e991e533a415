/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* The state of a thread of the program: its current context, and its caches for contexts and regions. */

#include "pool/tcache.h"
#include "context.h"
#include "shim/base/slow_path.h"
#include "stream.h"

enum { GP_THREAD_CACHES = 16 }; /* enough for all devices of a machine, or for several regions of one device */

struct gp_thread {
	CUcontext current; /* the last known current context; NULL: unknown, since the thread may have changed it */
	struct gp_thread_cache {
		CUcontext handle; /* the context; NULL while the thread is outside the cache's region */
		CUcontext owner;  /* the context, in every region; NULL: the slot is free */
		int region;
		struct gp_context *context;
		struct gp_tcache *tcache;
		struct gp_tcache *streamed; /* for allocations in stream order: perhaps the same; NULL: none yet */
		unsigned runtimes;  /* runtimes whose calls have succeeded with this cache: bits of gp_runtime_bit */
	} caches[GP_THREAD_CACHES]; /* the last used cache first; no gaps */
	struct gp_thread_streams streams;
	struct {
		const void *searched; /* the thread cache, or the pool of pinned memory */
		uint64_t bytes;
	} missed; /* the request that the runtime's hook could not serve and has passed on; searched NULL: none */
};

extern _Thread_local struct gp_thread *gp_thread_self __attribute__((tls_model("initial-exec")));

/* To be called when the thread makes a call that changes its current context. */
static inline void gp_thread_forget_current(void)
{
	if (gp_thread_self)
		gp_thread_self->current = NULL;
}

/*
 * Returns the last known current context, or NULL if the driver has to be asked. Another context may be current by now.
 * An outdated answer does no harm unless its context has ended, and every user of a cache checks that.
 */
static inline CUcontext gp_thread_current(const struct gp_thread *self)
{
	return gp_unlikely(gp_slow_path_is_any(GP_SLOW_PATH_END)) ? NULL : self->current;
}

/*
 * Asks the driver for the current context; NULL if there is none. If the answer differs from the thread's last known
 * context, some calls bypass gpupool. From then on every allocation asks the driver (GP_SLOW_PATH_CURRENT).
 */
CUcontext gp_thread_ask_current(void);

/* Sets up this module. start starts the library; it is called before a thread gets a cache. */
void gp_threads_start(void (*start)(void));

/* Registers the exit handler, after which each call asks the driver. To be called once CUDA is in use. */
void gp_thread_watch_exit(void);

/* Creates the thread's state if needed. Returns false if there is no host memory. */
bool gp_thread_ensure(void);

/* Switches to the caches of a region that the thread enters or returns to. */
void gp_thread_go_to_region(int region);

/* Finds or creates the thread's cache for its current context, which the caller passes. NULL if it may have none. */
struct gp_tcache *gp_thread_cache_slow(CUcontext handle);

/*
 * Returns the cache for allocations in stream order that goes with a cache of this thread. NULL: there is no memory. If
 * there is none yet, the caller must use the context.
 */
struct gp_tcache *gp_thread_streamed_slow(struct gp_thread_cache *cache);

static inline struct gp_tcache *gp_thread_streamed(struct gp_thread_cache *cache)
{
	return gp_likely(cache->streamed) ? cache->streamed : gp_thread_streamed_slow(cache);
}

/* Flushes and removes the thread's caches. The next allocation that may use one creates it again. */
void gp_thread_close_caches(void);

static inline bool gp_thread_is_usable(const struct gp_thread_cache *cache, CUcontext handle)
{
	return cache->handle == handle &&
	       !gp_context_is(cache->context, GP_CONTEXT_DEAD | GP_CONTEXT_ENDING | GP_CONTEXT_BROKEN);
}

/* Returns the thread's cache for the current context, or NULL: then the pool itself has to be used. */
static inline struct gp_tcache *gp_thread_cache(CUcontext handle)
{
	struct gp_thread *self = gp_thread_self;

	if (gp_unlikely(!self || !handle || !gp_thread_is_usable(&self->caches[0], handle)))
		return gp_thread_cache_slow(handle);
	self->current = handle;
	return self->caches[0].tcache;
}

/*
 * Notes that the runtime's hook could not serve a request from a thread cache or a pool, and calls the runtime for it;
 * NULL: that call is over.
 */
static inline void gp_thread_note_miss(const void *searched, uint64_t bytes)
{
	struct gp_thread *self = gp_thread_self;

	if (!self)
		return;
	self->missed.searched = searched;
	self->missed.bytes = bytes;
}

/*
 * Returns the step of the ladder at which the driver's hook starts: after the steps that the runtime's hook has tried,
 * if this is the request that it noted. A note serves one request.
 */
static inline enum gp_step gp_thread_missed_step(const void *searched, uint64_t bytes)
{
	struct gp_thread *self = gp_thread_self;

	if (!self || !self->missed.searched || self->missed.searched != searched || self->missed.bytes != bytes)
		return GP_STEP_cache;
	self->missed.searched = NULL;
	return GP_STEP_gpuwait;
}
