/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "replay_call.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>

#include "pool/pool_control.h"
#include "pool/tcache.h"
#include "tools/text/stat_say.h"

/*
 * Bounds the recorded wait before an out-of-memory error. In a replay no other thread frees memory meanwhile, so the
 * wait cannot succeed, and takes many small steps.
 */
#define OOM_WAIT_MAX_NS UINT64_C(1000000000)
#define DEFAULT_PAGE    (4 * GP_KIB)
#define THREAD_CACHE    (64 * GP_MIB) /* the default (common/config.def) */

/* True if the option --limit replaces the recorded limit. */
static bool is_limited(const struct replay_state *run, bool is_pinned)
{
	return !is_pinned && run->settings.limit_bytes != GP_NO_LIMIT;
}

/*
 * Returns the memory of a POOL event. Sets its limit even if the memory is not new: a change of the limit is recorded
 * only while there is a pool.
 */
static struct replay_memory *memory_of(struct replay_state *run, const struct replay_event *e)
{
	struct replay_memory **memory = e->values[2] ? &run->pinned : &run->devices[e->values[1] % REPLAY_DEVICES_MAX];
	uint64_t limit = is_limited(run, e->values[2] != 0) ? run->settings.limit_bytes : e->values[6];

	if (!*memory) {
		*memory = stat_alloc(calloc(1, sizeof(**memory)));
		replay_memory_init(*memory, gp_min(e->values[5], REPLAY_CAPACITY_MAX), limit);
	}
	atomic_store(&(*memory)->budget.limit_bytes, limit);
	return *memory;
}

/*
 * Returns the pool type for a recorded pool. For pinned memory the library has only binned and none. With the recorded
 * type each pool keeps its own, since under split those for allocations in stream order are vmm.
 */
static enum gp_kind kind_of(const struct replay_state *run, const struct replay_event *e)
{
	bool is_pinned = e->values[2] != 0;

	if (is_pinned && run->settings.kind != GP_KIND_NONE)
		return GP_KIND_BINNED;
	if (!is_pinned && run->settings.kind == run->contents->kind)
		return (enum gp_kind)gp_min(e->values[3], GP_KIND_VMM);
	return run->settings.kind;
}

/*
 * Returns the recorded bound of pending blocks. The type none has another default than all other types, so if exactly
 * one of the recorded and the replayed type is none, returns the default of the replayed one.
 */
static uint64_t pending_count_max(enum gp_kind kind, const struct replay_event *e)
{
	if ((enum gp_kind)e->values[3] == kind || (e->values[3] != GP_KIND_NONE && kind != GP_KIND_NONE))
		return e->values[8];
	return kind == GP_KIND_NONE ? 10 : UINT64_MAX;
}

static bool needs_completion(const struct replay_state *run, const struct replay_pool *p)
{
	if (p->is_pinned || run->settings.reuse == REPLAY_REUSE_COMPLETED)
		return true;
	return run->settings.reuse == REPLAY_REUSE_AUTO && (p->flags & GP_RECORD_POOL_COMPLETION);
}

/* Returns 0 for pinned memory, and the default if the recording has no page size or one that is not a power of two. */
static uint64_t page_bytes(const struct replay_event *e)
{
	uint64_t page = e->values[14];

	if (!page || page & (page - 1))
		page = DEFAULT_PAGE;
	return e->values[2] ? 0 : gp_min(page, e->values[4]);
}

void replay_add_pool(struct replay_state *run, const struct replay_event *e)
{
	struct replay_pool *p = stat_alloc(calloc(1, sizeof(*p)));
	struct gp_pool_options options = {
		.kind = kind_of(run, e),
		.granule = e->values[4],
		.page_bytes = page_bytes(e),
		.capacity_bytes = gp_min(e->values[5], REPLAY_CAPACITY_MAX),
		.pending_bytes_max = e->values[7],
		.reserve_bytes = e->values[9],
		.oom_wait_ns = gp_min(e->values[10], OOM_WAIT_MAX_NS),
		.thread_cache_bytes = e->values[13],
	};

	p->number = run->n_pools;
	p->work = &run->work;
	p->clock = &run->clock;
	p->first_now = run->clock.now;
	p->memory = memory_of(run, e);
	p->is_pinned = e->values[2] != 0;
	p->is_early = !p->is_pinned && !e->values[13] && !e->values[14];
	p->lag_ns = run->contents->lag_ns;
	p->flags = (unsigned)e->values[11];
	options.backend = replay_backend(p);
	options.backend.work = options.kind == GP_KIND_NONE || !(p->flags & GP_RECORD_POOL_SEES) ? NULL : p->work;
	p->is_instant = run->contents->is_text;
	p->fences = e->values[12] ? run->pools[e->values[12] - 1]->fences : p;
	options.sibling = p->fences == p ? NULL : p->fences->pool;
	options.map = &p->memory->map;
	options.budget = &p->memory->budget;
	options.n_defers = &run->n_defers;
	options.pending_count_max = pending_count_max(options.kind, e);
	options.completion_only = needs_completion(run, p);
	if (p->is_early)
		options.thread_cache_bytes = gp_min(THREAD_CACHE, options.capacity_bytes / GP_TCACHE_SHARE);
	if (is_limited(run, p->is_pinned)) {
		options.pending_bytes_max = gp_min(options.pending_bytes_max, run->settings.limit_bytes / 5);
		options.thread_cache_bytes =
			gp_min(options.thread_cache_bytes, run->settings.limit_bytes / GP_TCACHE_SHARE);
	}
	if (gp_pool_new(&options, &p->pool))
		stat_alloc(NULL);
	/* This version begins in serial mode, and records when that ends: an earlier one recorded a second stream. */
	if (p->is_early || run->contents->is_text)
		gp_pool_set_serial(p->pool, true);
	run->pools = stat_alloc(realloc(run->pools, (run->n_pools + 1) * sizeof(*run->pools)));
	run->pools[run->n_pools++] = p;
}

/*
 * Opens a cache for the event's thread. With another pool type, or with a limit, the pool may refuse to open one; then
 * NULL is returned.
 */
static struct gp_tcache *open_cache(struct replay_state *run, const struct replay_event *e)
{
	struct gp_tcache *tcache = gp_tcache_new(run->pools[e->pool]->pool);

	if (tcache)
		replay_map_put(&run->caches,
			(struct replay_entry){.key = replay_cache_key(e), .addr = (uintptr_t)tcache, .pool = e->pool});
	return tcache;
}

static void note_block(struct replay_state *run, const struct replay_event *e, uint64_t addr)
{
	struct replay_entry *old = replay_map_find(&run->live, e->values[0]);
	uint64_t bytes = run->pools[e->pool]->is_pinned ? 0 : e->values[1];

	if (old)
		run->live_bytes -= old->bytes;
	run->live_bytes += bytes;
	replay_map_put(&run->live, (struct replay_entry){e->values[0], bytes, addr, e->pool});
	if (run->settings.knows_origins)
		replay_map_put(&run->origins, (struct replay_entry){addr, e->values[1], e->thread, e->pool,
						      (uint32_t)gp_min(e->values[4], UINT32_MAX)});
}

/*
 * Returns the thread cache for a call that went through one when it was recorded, or NULL. Calls that an earlier
 * version recorded go through one, too, since those of this version would. So do those of a trace, of one thread.
 */
static struct gp_tcache *cache_of(struct replay_state *run, const struct replay_event *e)
{
	bool has_pool = e->pool != REPLAY_NO_POOL;
	bool is_early = has_pool && run->pools[e->pool]->is_early;
	bool was_cached = has_pool && ((e->values[3] & GP_RECORD_CALL_BY_THREAD) || is_early);
	struct replay_entry *entry = was_cached ? replay_map_find(&run->caches, replay_cache_key(e)) : NULL;

	if (entry)
		return (struct gp_tcache *)(uintptr_t)entry->addr;
	if (!was_cached || !(is_early || run->contents->is_text) || run->caches.n >= REPLAY_CACHES_MAX)
		return NULL;
	return open_cache(run, e);
}

static void close_cache(struct replay_state *run, struct replay_entry *entry)
{
	gp_tcache_free((struct gp_tcache *)(uintptr_t)entry->addr);
	replay_map_remove(&run->caches, entry);
}

static void run_cache(struct replay_state *run, const struct replay_event *e)
{
	struct replay_entry *entry = replay_map_find(&run->caches, replay_cache_key(e));

	if (entry)
		close_cache(run, entry);
	if (e->values[0])
		(void)open_cache(run, e);
}

void replay_close_caches(struct replay_state *run)
{
	struct replay_entry *entry;

	while ((entry = replay_map_next(&run->caches, NULL)))
		close_cache(run, entry);
}

static int alloc(struct replay_pool *p, const struct replay_event *e, struct gp_tcache *tcache, uint64_t *ret_addr)
{
	const struct gp_alloc_options options = {.stream = p->is_pinned ? 0 : e->values[5]};

	if (e->values[3] & GP_RECORD_CALL_UNCACHED)
		return gp_pool_alloc_uncached(p->pool, e->values[1], &options, ret_addr);
	return tcache ? gp_tcache_alloc(tcache, e->values[1], 0, ret_addr)
		      : gp_pool_alloc_with(p->pool, e->values[1], &options, ret_addr);
}

/* Counts how far the program gets before the first allocation that fails only in the replay. */
static void note_progress(struct replay_state *run, bool is_served)
{
	struct replay_result *result = run->result;

	if (result->n_refused)
		return;
	result->n_served += is_served;
	result->peak_served_bytes = gp_max(result->peak_served_bytes, run->live_bytes);
}

/* The recorded allocation failed, so the program will never free this block. */
static void release_rescued(struct replay_state *run, struct replay_pool *p, uint64_t addr)
{
	run->result->n_rescued++;
	(void)gp_pool_free(&p->memory->map, addr, GP_FREE_SYNCED);
}

static void run_alloc(struct replay_state *run, const struct replay_event *e)
{
	struct replay_pool *p = run->pools[e->pool];
	bool was_served = !e->values[2] && e->values[0];
	uint64_t addr = 0;
	int r;

	p->now = gp_max(p->now, e->position);
	p->fences->now = gp_max(p->fences->now, e->position);
	r = alloc(p, e, cache_of(run, e), &addr);
	if (!r && was_served)
		note_block(run, e, addr);
	else if (!r)
		release_rescued(run, p, addr);
	else if (was_served)
		run->result->n_refused++;
	note_progress(run, !r && was_served);
}

/* Frees a block on the path that the hooks would take for this call. */
static void release(struct gp_addrmap *map, uint64_t addr, const struct replay_event *e, struct gp_tcache *tcache)
{
	enum gp_free_mode mode = (enum gp_free_mode)gp_min(e->values[1], GP_FREE_SYNCED);
	uint64_t stream = e->values[2] ? 0 : e->values[4];

	if (stream) {
		(void)gp_pool_free_on(map, addr, stream);
		return;
	}
	if (tcache && gp_tcache_put(tcache, addr) != -ENOENT)
		return;
	if (tcache)
		(void)gp_tcache_free_by(map, addr, tcache);
	else if (e->values[3] & GP_RECORD_CALL_UNCACHED)
		(void)gp_pool_free_uncached(map, addr, mode);
	else
		(void)gp_pool_free(map, addr, mode);
}

static void run_free(struct replay_state *run, const struct replay_event *e)
{
	struct replay_entry *block = replay_map_find(&run->live, e->values[0]);

	if (!(e->values[3] & GP_RECORD_CALL_CALM))
		gp_submission_note(&run->work);
	/* A free of device memory by the call for pinned memory, or the other way round, has no effect. */
	if (!block || run->pools[block->pool]->is_pinned != (e->values[2] != 0))
		return;
	release(&run->pools[block->pool]->memory->map, block->addr, e, cache_of(run, e));
	run->live_bytes -= block->bytes;
	replay_map_remove(&run->live, block);
}

static void run_export(struct replay_state *run, const struct replay_event *e)
{
	struct replay_entry *block = replay_map_find(&run->live, e->values[0]);

	if (block)
		(void)gp_pool_export(&run->pools[block->pool]->memory->map, block->addr);
}

/* The end of a context also ends its blocks: a later free of one of them has no effect. */
static void run_drop(struct replay_state *run, uint32_t number)
{
	struct replay_entry *block;

	while ((block = replay_map_of_pool(&run->live, number))) {
		run->live_bytes -= block->bytes;
		replay_map_remove(&run->live, block);
	}
	replay_pool_drop(run->pools[number]);
}

static void run_unpooled(struct replay_state *run, const struct replay_event *e)
{
	struct replay_memory *m = run->devices[e->values[0] % REPLAY_DEVICES_MAX];

	if (!m)
		return;
	atomic_fetch_add(&m->budget.charged_bytes, e->values[1] - m->unpooled_bytes);
	m->unpooled_bytes = e->values[1];
}

/* A new limit is recorded once for each pool of the memory. It is set each time, which does no harm. */
static void run_limit(struct replay_state *run, const struct replay_event *e)
{
	struct replay_pool *p = run->pools[e->pool];
	uint64_t over;

	if (is_limited(run, p->is_pinned))
		return;
	atomic_store(&p->memory->budget.limit_bytes, e->values[0]);
	gp_pool_set_pending_max(p->pool, e->values[1]);
	over = gp_budget_over(&p->memory->budget);
	if (over)
		(void)gp_pool_trim(p->pool, over);
}

static void run_defer(struct replay_state *run, const struct replay_event *e)
{
	atomic_store(&run->n_defers, (unsigned)gp_min(e->values[0], UINT_MAX));
	for (uint32_t i = 0; i < run->n_pools && !e->values[0]; i++)
		gp_pool_flush(run->pools[i]->pool, e->values[1] != 0);
}

struct rescue {
	struct replay_pool *pool;
	uint64_t bytes;
};

static int attempt(void *arg)
{
	const struct rescue *rescue = arg;

	return replay_attempt(rescue->pool, rescue->bytes);
}

/* Replays a call that is about one pool. */
static void run_on_pool(struct replay_state *run, const struct replay_event *e)
{
	struct replay_pool *p = run->pools[e->pool];
	struct rescue rescue = {p, e->values[0]};

	switch (e->kind) {
	case GP_RECORD_OVERLAP:
		if (p->is_early && e->values[0])
			gp_pool_set_serial(p->pool, false);
		gp_pool_set_overlap(p->pool, e->values[0]);
		break;
	case GP_RECORD_IN_ORDER:
		gp_pool_set_serial(p->pool, e->values[0]);
		break;
	case GP_RECORD_COMPLETION:
		if (run->settings.reuse == REPLAY_REUSE_AUTO)
			(void)gp_pool_require_completion(p->pool);
		break;
	case GP_RECORD_WHOLE:
		gp_pool_set_whole(p->pool);
		break;
	case GP_RECORD_RECLAIM:
		if (e->values[0])
			(void)gp_pool_invalidate(p->pool, &(struct gp_invalidated){0});
		else
			(void)gp_pool_reclaim(p->pool);
		break;
	case GP_RECORD_SHRINK:
		(void)gp_pool_trim(p->pool, e->values[0]);
		break;
	case GP_RECORD_LIMIT:
		run_limit(run, e);
		break;
	case GP_RECORD_SYNC:
		(void)gp_pool_synchronize(p->pool);
		break;
	case GP_RECORD_RESCUE:
		(void)gp_pool_rescue(p->pool, e->values[0], attempt, &rescue, NULL);
		break;
	case GP_RECORD_CACHE:
		run_cache(run, e);
		break;
	case GP_RECORD_ORDER_AGAIN:
		gp_pool_gpu_wait_again(p->pool);
		break;
	case GP_RECORD_DROP:
		run_drop(run, e->pool);
		break;
	default:
		break;
	}
}

void replay_call(struct replay_state *run, const struct replay_event *e)
{
	switch (e->kind) {
	case GP_RECORD_ALLOC:
		run_alloc(run, e);
		break;
	case GP_RECORD_FREE:
		run_free(run, e);
		break;
	case GP_RECORD_EXPORT:
		run_export(run, e);
		break;
	case GP_RECORD_UNPOOLED:
		run_unpooled(run, e);
		break;
	case GP_RECORD_DEFER:
		run_defer(run, e);
		break;
	default:
		run_on_pool(run, e);
		break;
	}
}
