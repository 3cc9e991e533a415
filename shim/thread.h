/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* What a thread of the program has of its own: caches for the contexts that it allocates in. */

#include "../pool/tcache.h"
#include "context.h"
#include "unusual.h"

enum { GP_THREAD_CACHES = 16 }; /* as many devices as there are in a machine, or regions of one */

struct gp_thread {
	CUcontext current; /* the context at the last look, if the thread has done nothing since that changes it */
	struct gp_thread_cache {
		CUcontext handle; /* NULL: of a region that the thread is not in */
		CUcontext owner;  /* the context, whether it is or not; NULL: not in use */
		int region;
		const struct gp_context *context;
		struct gp_tcache *tcache;
		unsigned runtimes; /* whose calls have succeeded here: gp_runtime_bit */
	} caches[GP_THREAD_CACHES]; /* the one used last is the first; no gaps */
};

extern _Thread_local struct gp_thread *gp_thread_self __attribute__((tls_model("initial-exec")));

/* The thread does what changes its current context. */
static inline void gp_thread_forget_current(void)
{
	if (gp_thread_self)
		gp_thread_self->current = NULL;
}

/*
 * The current context, of which nobody needs to be sure: for what it has to be right about is only that it has not
 * ended, and whoever uses a cache looks at that. NULL: ask the driver.
 */
static inline CUcontext gp_thread_current(const struct gp_thread *self)
{
	return gp_unlikely(gp_is_unusual(GP_UNUSUAL_END)) ? NULL : self->current;
}

/*
 * The driver's answer, for who cannot do with less; NULL: there is none. If it is not what is known here, somebody's
 * calls are not seen: then each allocation asks from now on.
 */
CUcontext gp_thread_ask_current(void);

/* Sees to it that the end of the process is known. Once CUDA is in use. */
void gp_thread_watch_exit(void);

/* Whether the thread has a place for what is its own; makes one if there is host memory. */
bool gp_thread_exists(void);

/* The thread enters a region, or leaves one: its caches are those of that region from now on. */
void gp_thread_go_to_region(int region);

/* Makes a cache for the current context, or finds it. NULL if there can be none. */
struct gp_tcache *gp_thread_cache_slow(CUcontext handle);

/* Gives back all that the thread's caches hold; they are made anew when it is served from one again. */
void gp_thread_close_caches(void);

/* What others' threads had is nobody's in a forked child, and one's own is of no use there. */
void gp_thread_after_fork_child(void);

static inline bool gp_thread_is_usable(const struct gp_thread_cache *cache, CUcontext handle)
{
	return cache->handle == handle &&
	       !gp_context_is(cache->context, GP_CONTEXT_DEAD | GP_CONTEXT_ENDING | GP_CONTEXT_BROKEN);
}

/* The thread's cache for the current context, or NULL: then the pool itself is the way. */
static inline struct gp_tcache *gp_thread_cache(CUcontext handle)
{
	struct gp_thread *self = gp_thread_self;

	if (gp_unlikely(!self || !handle || !gp_thread_is_usable(&self->caches[0], handle)))
		return gp_thread_cache_slow(handle);
	self->current = handle;
	return self->caches[0].tcache;
}
