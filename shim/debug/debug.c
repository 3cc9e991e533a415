/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "debug.h"

#include <errno.h>

#include "debug_io.h"
#include "debug_report.h"
#include "shim/base/clock.h"
#include "shim/base/fork.h"
#include "shim/context/context.h"
#include "shim/context/scope.h"
#include "shim/trace/alloc_info.h"

/*
 * The guard before a small block is as large as the block's alignment. The guard behind it has at least that size, plus
 * what the pool's rounding adds. CHECK_MAX_NS bounds a requested check, so that the client gets its answer in time.
 */
#define GUARD_BYTES  GP_ALIGN
#define CHECK_MAX_NS UINT64_C(1000000000)

static _Atomic uint64_t n_checks, n_skipped, n_errors, spent_ns;

static void add(_Atomic uint64_t *counter, uint64_t n)
{
	atomic_fetch_add_explicit(counter, n, memory_order_relaxed);
}

void gp_debug_stats(struct gp_debug_stats *ret)
{
	ret->checks = atomic_load(&n_checks);
	ret->skipped = atomic_load(&n_skipped);
	ret->errors = atomic_load(&n_errors);
	ret->ns = atomic_load(&spent_ns);
}

/*
 * Returns the size of the guard before a block, or 0 for no guard. A block that may get a legacy IPC handle has none,
 * since importers open the driver allocation at its base. Pinned blocks have none, since a program may rely on their
 * page alignment. Before a large block the guard is a page, so that the block begins at a page, as without a guard.
 */
static uint64_t guard_before(bool is_pinned, uint64_t bytes)
{
	uint64_t guard = bytes > GP_SMALL_MAX ? gp_state_page_bytes() : GUARD_BYTES;
	enum gp_kind kind = gp_state_kind();

	if (is_pinned || !gp_state.config.debug.guard || gp_scope_no_caches)
		return 0;
	/* With GPUPOOL_POOL=auto the context may have either kind. */
	if (kind == GP_KIND_SPLIT || gp_state.config.pool == GP_CONFIG_POOL_AUTO)
		return atomic_load(&gp_state.needs_whole) ? 0 : guard;
	return kind == GP_KIND_VMM ? guard : 0;
}

static struct gp_addrmap *map_of(bool is_pinned)
{
	return is_pinned ? &gp_state.pinned_map : &gp_state.device_map;
}

static void count_findings(const struct gp_finding *found)
{
	for (int i = 0; i < GP_N_FINDINGS; i++)
		add(&n_errors, found[i].n_wrong != 0);
}

static void report_findings(const struct gp_finding *found)
{
	for (int i = 0; i < GP_N_FINDINGS; i++)
		if (found[i].n_wrong)
			gp_finding_report(&found[i]);
}

/* Checks a zone whose memory no thread uses, and reports the findings. No lock may be held. */
static void check(struct gp_zone *zone, enum gp_finding_when when)
{
	struct gp_finding found[GP_N_FINDINGS];

	if (!gp_zone_is_watched(zone))
		return;
	add(gp_zone_check(zone, when, found) ? &n_skipped : &n_checks, 1);
	count_findings(found);
	report_findings(found);
}

static void check_and_free(struct gp_zone *list, enum gp_finding_when when)
{
	struct gp_zone *zone;

	while ((zone = list)) {
		list = zone->next;
		check(zone, when);
		gp_zone_free(zone);
	}
}

/*
 * Inserts the zone and takes out older zones at its addresses. If the zone's context has ended, the zones there may
 * belong to another context by now, so they stay, and the new zone is not inserted.
 */
static bool replace_zones(struct gp_zone *zone, struct gp_zone **ret_before)
{
	bool is_in;

	zone->is_new = true;
	gp_mutex_lock(&gp_zones_lock);
	*ret_before = NULL;
	if (!gp_context_is(zone->block.context, GP_CONTEXT_DEAD))
		*ret_before = gp_zones_take_locked(zone->addr, zone->bytes);
	is_in = gp_zone_insert_locked(zone);
	gp_mutex_unlock(&gp_zones_lock);
	return is_in;
}

/*
 * Begins to watch a block that the program has not received yet. A free of its address by another thread at this
 * moment is an error of the program.
 */
static void watch(struct gp_zone *zone)
{
	struct gp_debug_piece pieces[2];
	unsigned n = gp_zone_guards(&zone->block, pieces);
	struct gp_zone *before;
	bool is_in = replace_zones(zone, &before), is_guarded = false;

	check_and_free(before, GP_SEEN_AT_REUSE);
	if (gp_state.config.debug.guard) {
		is_guarded = !gp_debug_io_guard(zone->block.context, zone->block.is_pinned, pieces, n);
		add(&n_skipped, !is_guarded);
	}
	gp_mutex_lock(&gp_zones_lock);
	zone->block.is_guarded = is_guarded;
	zone->is_new = false;
	is_in = is_in && !zone->is_out;
	gp_mutex_unlock(&gp_zones_lock);
	if (!is_in)
		gp_zone_free(zone);
}

int gp_debug_alloc(struct gp_pool *pool, bool is_pinned, uint64_t bytes, const struct gp_alloc_options *options,
	uint64_t *ret_addr)
{
	uint64_t before = guard_before(is_pinned, bytes), behind = gp_state.config.debug.guard ? GUARD_BYTES : 0;
	struct gp_zone *zone = gp_zone_new(gp_pool_owner(pool));
	struct gp_block_info info;
	uint64_t start_ns, start = 0;
	int r;

	if (!zone)
		return -ENOBUFS;
	/* The sum must not overflow. So large a request fails in any case, so make it without guards. */
	if (bytes > UINT64_MAX / 2)
		before = behind = 0;
	r = gp_scope_alloc(pool, before + bytes + behind, options, &start);
	start_ns = gp_clock_now_ns(NULL);
	*ret_addr = r ? 0 : start + before;
	if (r || gp_pool_info(map_of(is_pinned), start, &info)) {
		gp_zone_free(zone);
		return r;
	}
	zone->addr = zone->block.start = start;
	zone->bytes = info.rounded;
	zone->block.end = start + info.rounded;
	zone->block.segment = info.segment_base;
	zone->block.ptr = start + before;
	zone->block.bytes = bytes;
	zone->block.alloc_ns = start_ns;
	zone->block.is_pinned = is_pinned;
	watch(zone);
	add(&spent_ns, gp_clock_now_ns(NULL) - start_ns);
	return 0;
}

/*
 * Returns true if no GPU work can touch the block any more. The free has waited for one context only, but every
 * context can touch pinned memory.
 */
static bool is_out_of_use(const struct gp_zone_block *block)
{
	struct gp_pool *pool;
	bool is_idle;

	if (!block->is_pinned)
		return true;
	pool = gp_addrmap_pool_of(&gp_state.pinned_map, block->start);
	is_idle = pool && gp_pool_is_idle(pool);
	gp_pool_put(pool);
	return is_idle;
}

/*
 * Returns true if a freed block is to be filled. Blocks that go back to the driver at once are not filled, and
 * neither are exported blocks, which another process may still read.
 */
static bool should_fill(const struct gp_zone_block *block)
{
	struct gp_block_info info;

	return gp_state.config.debug.poison && gp_state_kind() != GP_KIND_NONE && !gp_scope_no_caches &&
	       gp_pool_info(map_of(block->is_pinned), block->start, &info) == 0 && !info.is_retired;
}

/* Checks and fills a block between its last use and its free. Returns false if the fill may still be under way. */
static bool check_and_fill(struct gp_zone *zone)
{
	struct gp_zone_block *block = &zone->block;
	struct gp_debug_piece all = {block->start, block->end - block->start};
	int r;

	check(zone, GP_SEEN_AT_FREE);
	block->is_guarded = false;
	if (!should_fill(block))
		return true;
	r = gp_debug_io_poison(block->context, block->is_pinned, &all);
	block->is_filled = !r;
	add(&n_skipped, r != 0);
	return !r || r == -EBUSY;
}

static void note_free(struct gp_zone_block *block)
{
	struct gp_alloc_info record;

	block->is_freed = true;
	block->free_ns = gp_clock_now_ns(NULL);
	if (!gp_alloc_info_find(block->ptr, &record))
		return;
	block->alloc_site = record.given;
	block->free_site = record.freed;
}

/*
 * Takes out and returns the zone of the block that the program frees. If ptr is not the address of such a block,
 * returns NULL, and in *ret_other the address to pass to the pool.
 */
static struct gp_zone *take_zone_of(bool is_pinned, uint64_t ptr, uint64_t *ret_other)
{
	struct gp_zone *zone;
	bool is_held, is_block;

	gp_mutex_lock(&gp_zones_lock);
	zone = gp_zone_find_locked(ptr);
	is_held = zone && !zone->block.is_freed && zone->block.is_pinned == is_pinned;
	is_block = is_held && !zone->is_new && zone->block.ptr == ptr;
	/*
	 * Every block has a zone, so an address without a zone is not a block of the program. The pool might still
	 * accept it, for example as the start of a guard: choose an address that the pool refuses.
	 */
	*ret_other = ptr + (ptr % GP_ALIGN == 0);
	if (is_block)
		gp_zone_remove_locked(zone);
	gp_mutex_unlock(&gp_zones_lock);
	return is_block ? zone : NULL;
}

/* Undoes the free after the pool refused it. The block had no other owner in between. */
static void undo_free(struct gp_zone *zone, uint64_t start, bool is_inserted)
{
	struct gp_zone *unwanted = NULL;

	gp_mutex_lock(&gp_zones_lock);
	if (is_inserted)
		zone = gp_zone_find_locked(start);
	if (zone)
		zone->block.is_freed = false;
	if (zone && !is_inserted && !gp_zone_insert_locked(zone))
		unwanted = zone;
	gp_mutex_unlock(&gp_zones_lock);
	if (unwanted)
		gp_zone_free(unwanted);
}

/*
 * Keeps the context alive until the pool has taken the block back. Otherwise the context could end, and a new context
 * could get a block at the same address before the pool sees this free.
 */
static int give_to_pool(struct gp_zone *zone, enum gp_free_mode mode, gp_debug_release_fn *release)
{
	struct gp_context *context = zone->block.context;
	uint64_t start = zone->block.start;
	bool is_pinned = zone->block.is_pinned, is_kept;
	int r;

	if (!gp_context_enter(context)) {
		gp_zone_free(zone);
		return GP_E_DEAD;
	}
	gp_context_ref(context);
	gp_mutex_lock(&gp_zones_lock);
	is_kept = gp_zone_is_watched(zone) && gp_zone_insert_locked(zone);
	gp_mutex_unlock(&gp_zones_lock);
	r = release(map_of(is_pinned), start, mode);
	if (r == GP_E_NOT_PERMITTED)
		undo_free(zone, start, is_kept);
	else if (!is_kept)
		gp_zone_free(zone);
	gp_context_leave(context);
	gp_context_unref(context);
	return r;
}

int gp_debug_free(bool is_pinned, uint64_t ptr, bool is_waited, enum gp_free_mode mode, gp_debug_release_fn *release)
{
	uint64_t start_ns = gp_clock_now_ns(NULL), other;
	struct gp_zone *zone = take_zone_of(is_pinned, ptr, &other);
	int r;

	if (!zone)
		return release(map_of(is_pinned), other, mode);
	note_free(&zone->block);
	if (is_waited && is_out_of_use(&zone->block)) {
		if (!check_and_fill(zone) && mode == GP_FREE_SYNCED)
			mode = GP_FREE_NORMAL;
	} else {
		/* The block is not filled. Its guards can still be checked before it is reused. */
		add(&n_skipped, gp_state.config.debug.poison);
	}
	r = give_to_pool(zone, mode, release);
	add(&spent_ns, gp_clock_now_ns(NULL) - start_ns);
	return r;
}

void gp_debug_adjust_slow(struct gp_block_info *info)
{
	const struct gp_zone *zone;

	gp_mutex_lock(&gp_zones_lock);
	zone = gp_zone_find_locked(info->addr);
	if (zone && !zone->block.is_freed && zone->block.start == info->addr) {
		info->rounded -= zone->block.ptr - info->addr;
		info->is_whole = info->is_whole && zone->block.ptr == info->addr;
		info->addr = zone->block.ptr;
		info->size = zone->block.bytes;
	}
	gp_mutex_unlock(&gp_zones_lock);
}

uint64_t gp_debug_ptr(uint64_t addr)
{
	struct gp_block_info info = {.addr = addr, .is_used = true};

	gp_debug_adjust(&info);
	return info.addr;
}

void gp_debug_leave_slow(uint64_t addr, uint64_t bytes, bool is_done)
{
	uint64_t start_ns = gp_clock_now_ns(NULL);
	struct gp_zone *zone, *list;

	gp_mutex_lock(&gp_zones_lock);
	list = bytes ? gp_zones_take_locked(addr, bytes) : gp_zones_take_segment_locked(addr);
	gp_mutex_unlock(&gp_zones_lock);
	while (!is_done && (zone = list)) {
		list = zone->next;
		add(&n_skipped, gp_zone_is_watched(zone));
		gp_zone_free(zone);
	}
	check_and_free(list, GP_SEEN_AT_RELEASE);
	add(&spent_ns, gp_clock_now_ns(NULL) - start_ns);
}

/*
 * Checks the next watched zone from *at on with the lock held, and reports findings after releasing it. Returns false
 * if there is no such zone.
 */
static bool check_next(uint64_t *at, struct gp_debug_survey *survey)
{
	struct gp_finding found[GP_N_FINDINGS];
	struct gp_zone *zone;
	int r = 0;

	gp_mutex_lock(&gp_zones_lock);
	while ((zone = gp_zone_next_locked(*at)) && !gp_zone_is_watched(zone))
		*at = zone->addr + 1;
	if (zone) {
		*at = zone->addr + 1;
		r = gp_zone_check(zone, GP_SEEN_AT_CHECK, found);
		count_findings(found);
	}
	gp_mutex_unlock(&gp_zones_lock);
	if (!zone)
		return false;
	add(r ? &n_skipped : &n_checks, 1);
	survey->skipped += r != 0;
	survey->blocks += r == 0;
	for (int i = 0; i < GP_N_FINDINGS; i++)
		survey->errors += found[i].n_wrong != 0;
	report_findings(found);
	return true;
}

void gp_debug_check_all(struct gp_debug_survey *ret)
{
	uint64_t start_ns = gp_clock_now_ns(NULL), at = 0;

	*ret = (struct gp_debug_survey){0};
	while (!ret->is_truncated && check_next(&at, ret)) {
		ret->ns = gp_clock_now_ns(NULL) - start_ns;
		ret->is_truncated = ret->ns >= CHECK_MAX_NS;
	}
	add(&spent_ns, ret->ns);
}

static void forget_context(CUcontext handle, struct gp_context *context)
{
	if (context)
		gp_zones_forget_context(context);
}

static void reset_in_child(void)
{
	gp_mutex_init(&gp_zones_lock, GP_RANK_ZONES);
}

void gp_debug_start(void)
{
	static struct gp_context_watcher watcher = {.ended = forget_context, .freed = gp_debug_io_free};
	static const struct gp_fork_child child = {.fn = reset_in_child};

	if (!gp_debug_is_on())
		return;
	gp_fork_on_child(&child);
	gp_context_watch(&watcher);
}
