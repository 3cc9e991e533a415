/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "thread.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "common/compat.h"
#include "region.h"
#include "scope.h"
#include "shim/base/fork.h"
#include "shim/driver/driver_table.h"
#include "shim/driver/submit.h"
#include "shim/record/record.h"

_Thread_local struct gp_thread *gp_thread_self __attribute__((tls_model("initial-exec")));

static pthread_once_t key_once = PTHREAD_ONCE_INIT, exit_once = PTHREAD_ONCE_INIT;
static pthread_key_t key;
static bool has_key;
static void (*before_first_cache)(void);

static void free_cache(struct gp_tcache *tcache)
{
	gp_record(gp_tcache_pool(tcache), CACHE, 0);
	gp_tcache_free(tcache);
}

/* Flushes and removes a cache. The caches in the following slots move up. */
static void close_cache(struct gp_thread *self, int i)
{
	struct gp_thread_cache *cache = &self->caches[i];

	if (cache->streamed && cache->streamed != cache->tcache)
		free_cache(cache->streamed);
	free_cache(cache->tcache);
	memmove(&self->caches[i], &self->caches[i + 1], (size_t)(GP_THREAD_CACHES - 1 - i) * sizeof(self->caches[0]));
	self->caches[GP_THREAD_CACHES - 1] = (struct gp_thread_cache){0};
}

static void close_caches(struct gp_thread *self)
{
	while (self->caches[0].owner)
		close_cache(self, 0);
}

void gp_thread_close_caches(void)
{
	if (gp_thread_self)
		close_caches(gp_thread_self);
}

static void on_thread_end(void *arg)
{
	struct gp_thread *self = arg;

	gp_thread_self = NULL;
	gp_region_thread_ends();
	close_caches(self);
	free(self);
}

/* The process exits. From now on each call asks the driver, which may be shutting down. */
static void note_exit(void)
{
	gp_submission_lose_sight(&gp_submitted);
	gp_slow_path_add(GP_SLOW_PATH_END);
}

static void make_key(void)
{
	has_key = pthread_key_create(&key, on_thread_end) == 0;
}

/* Registers note_exit after the exit handlers of the driver and of runtimes, so that it runs before them. */
static void watch_exit(void)
{
	if (atexit(note_exit))
		note_exit();
}

void gp_thread_watch_exit(void)
{
	(void)pthread_once(&exit_once, watch_exit);
}

static struct gp_thread *get_or_create_self(void)
{
	struct gp_thread *self = gp_thread_self;

	if (self)
		return self;
	(void)pthread_once(&key_once, make_key);
	self = has_key ? calloc(1, sizeof(*self)) : NULL;
	if (self && pthread_setspecific(key, self)) {
		free(self);
		self = NULL;
	}
	gp_thread_self = self;
	return self;
}

bool gp_thread_ensure(void)
{
	return get_or_create_self() != NULL;
}

/* In a forked child, the state that its thread had in the parent. Shows a leak checker that the state is known. */
static struct gp_thread *volatile self_in_parent;

/*
 * The thread's state refers to contexts that do not exist in a forked child. It is not freed there: at this moment the
 * program's allocator may still hold a lock.
 */
static void reset_in_child(void)
{
	if (!gp_thread_self)
		return;
	self_in_parent = gp_thread_self;
	(void)pthread_setspecific(key, NULL);
	gp_thread_self = NULL;
}

void gp_threads_start(void (*start)(void))
{
	static const struct gp_fork_child child = {.fn = reset_in_child};

	gp_fork_on_child(&child);
	before_first_cache = start;
}

CUcontext gp_thread_ask_current(void)
{
	struct gp_thread *self = gp_thread_self;
	CUcontext handle = NULL;

	if (gp_real.cuCtxGetCurrent(&handle))
		return NULL;
	if (gp_unlikely(self && self->current && self->current != handle)) {
		gp_slow_path_lose_contexts();
		self->current = NULL;
	}
	return handle;
}

/* Moves a cache to the first slot, which is for the context in use. */
static struct gp_tcache *move_to_front(struct gp_thread *self, int i)
{
	struct gp_thread_cache cache = self->caches[i];

	memmove(&self->caches[1], &self->caches[0], (size_t)i * sizeof(cache));
	self->caches[0] = cache;
	return cache.tcache;
}

/* Returns the slot of the context's cache for the current region, or -1. Removes caches whose contexts have ended. */
static int find_cache(struct gp_thread *self, CUcontext handle)
{
	int i = 0;

	while (i < GP_THREAD_CACHES && self->caches[i].owner) {
		if (gp_tcache_is_dead(self->caches[i].tcache))
			close_cache(self, i);
		else if (self->caches[i].owner == handle && self->caches[i].region == gp_region_current)
			return i;
		else
			i++;
	}
	return -1;
}

void gp_thread_go_to_region(int region)
{
	struct gp_thread *self = gp_thread_self;
	CUcontext first = self ? self->caches[0].owner : NULL;
	int i;

	gp_region_current = region;
	if (!first)
		return;
	for (i = 0; i < GP_THREAD_CACHES; i++)
		self->caches[i].handle = self->caches[i].region == region ? self->caches[i].owner : NULL;
	i = find_cache(self, first);
	if (i > 0)
		(void)move_to_front(self, i);
}

static struct gp_tcache *new_cache(struct gp_pool *pool)
{
	struct gp_tcache *tcache = gp_tcache_new(pool);

	if (tcache)
		gp_record(pool, CACHE, 1);
	return tcache;
}

static void add_cache(struct gp_thread *self, struct gp_context *context)
{
	struct gp_tcache *tcache = new_cache(gp_region_pool(context));

	if (!tcache)
		return;
	if (self->caches[GP_THREAD_CACHES - 1].owner)
		close_cache(self, GP_THREAD_CACHES - 1);
	memmove(&self->caches[1], &self->caches[0], (GP_THREAD_CACHES - 1) * sizeof(self->caches[0]));
	self->caches[0] = (struct gp_thread_cache){
		.handle = context->handle,
		.owner = context->handle,
		.region = gp_region_current,
		.context = context, /* lives as long as its pool */
		.tcache = tcache,
		.streamed = context->regions.kind == GP_KIND_VMM ? tcache : NULL,
	};
}

struct gp_tcache *gp_thread_streamed_slow(struct gp_thread_cache *cache)
{
	struct gp_context *context = cache->context;
	int region = cache->region;
	struct gp_pool *pool = gp_region_streamed_pool(context);

	/* A callback of the program, in a driver call for a new pool, may have moved the thread's caches. */
	if (gp_unlikely(!pool || cache->context != context || cache->region != region))
		return NULL;
	cache->streamed = pool == gp_tcache_pool(cache->tcache) ? cache->tcache : new_cache(pool);
	return cache->streamed;
}

/*
 * True if the thread may have caches. It may not if the driver lacks cuCtxRecordEvent or cuCtxWaitEvent: then a record
 * makes the host wait for all work. Several frees share a fence of a cache, so it would also wait for work that was
 * submitted after the first of them.
 */
static bool may_have_caches(void)
{
	const struct gp_config *config = &gp_state.config;

	return config->thread_cache_bytes && config->pending_count == UINT64_MAX && gp_state_kind() != GP_KIND_NONE &&
	       gp_real.cuCtxRecordEvent && gp_real.cuCtxWaitEvent && !gp_scope_no_caches && !gp_region_has_caller_rules;
}

struct gp_tcache *gp_thread_cache_slow(CUcontext handle)
{
	struct gp_thread *self = handle && may_have_caches() ? get_or_create_self() : NULL;
	struct gp_context *context;
	int i;

	if (!self)
		return NULL;
	gp_thread_watch_exit();
	(void)gp_region_id(); /* creates the thread's region if needed */
	i = find_cache(self, handle);
	if (i >= 0)
		return gp_thread_is_usable(&self->caches[i], handle) ? move_to_front(self, i) : NULL;
	context = gp_context_current();
	/* A green context gets no cache: its handle may be reused for another context without gpupool noticing. */
	if (context && context->handle == handle && !gp_context_is(context, GP_CONTEXT_BROKEN)) {
		before_first_cache();
		add_cache(self, context);
	}
	gp_context_put(context);
	return self->caches[0].handle == handle ? self->caches[0].tcache : NULL;
}
