/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "debug.h"

#include <errno.h>

#include "backend.h"
#include "debug_report.h"
#include "driver.h"
#include "memory.h"

/*
 * Before a small block as much as its alignment takes; behind it at least that, and what the pool rounds to. A check
 * that is asked for ends in time for whoever waits for the answer.
 */
#define ZONE_BYTES   GP_ALIGN
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
 * A block that may get a legacy IPC handle has no zone before it, since importers open the driver allocation at its
 * base. Pinned blocks have none, since a program may count on their pages. Before a large block the zone is a page, so
 * that the block begins at one, as it does without a zone.
 */
static uint64_t bytes_before(bool is_pinned, uint64_t bytes)
{
	uint64_t zone = bytes > GP_SMALL_MAX ? gp_state_page_bytes() : ZONE_BYTES;
	enum gp_kind kind = gp_state_kind();

	if (is_pinned || !gp_state.config.debug.guard || gp_scope_no_caches)
		return 0;
	return (kind == GP_KIND_SPLIT && !atomic_load(&gp_state.needs_whole)) || kind == GP_KIND_VMM ? zone : 0;
}

static struct gp_context *context_of(const struct gp_pool *pool, bool is_pinned)
{
	return is_pinned ? gp_pinned_context(pool) : gp_pool_owner(pool);
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

/* No lock is held, and nobody has the memory. */
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

/* Where the zone goes somebody else's may be by now, if its context has ended. What was there before is taken out. */
static bool put_into_place(struct gp_zone *zone, struct gp_zone **ret_before)
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

/* The block was handed out just now, and nobody has been told of it: a free of that address is somebody's mistake. */
static void watch(struct gp_zone *zone)
{
	struct gp_debug_piece pieces[2];
	unsigned n = gp_zone_guards(&zone->block, pieces);
	struct gp_zone *before;
	bool is_in = put_into_place(zone, &before), is_guarded = false;

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

int gp_debug_alloc(struct gp_pool *pool, bool is_pinned, uint64_t bytes, uint32_t caller, uint64_t *ret_addr)
{
	uint64_t front = bytes_before(is_pinned, bytes), back = gp_state.config.debug.guard ? ZONE_BYTES : 0, start = 0;
	struct gp_zone *zone = gp_zone_new(context_of(pool, is_pinned));
	struct gp_block_info info;
	uint64_t start_ns;
	int r;

	if (!zone)
		return -ENOBUFS;
	/* Too much to be had: as the program asked. */
	if (bytes > UINT64_MAX / 2)
		front = back = 0;
	r = gp_memory_alloc_plain(pool, front + bytes + back, caller, &start);
	start_ns = gp_driver_now_ns(NULL);
	*ret_addr = r ? 0 : start + front;
	if (r || gp_pool_info(map_of(is_pinned), start, &info)) {
		gp_zone_free(zone);
		return r;
	}
	zone->addr = zone->block.start = start;
	zone->bytes = info.rounded;
	zone->block.end = start + info.rounded;
	zone->block.segment = info.segment_base;
	zone->block.ptr = start + front;
	zone->block.bytes = bytes;
	zone->block.given_ns = start_ns;
	zone->block.is_pinned = is_pinned;
	watch(zone);
	add(&spent_ns, gp_driver_now_ns(NULL) - start_ns);
	return 0;
}

/* Pinned memory can be touched by every context; the owner's work alone has been waited for. */
static bool is_out_of_use(const struct gp_zone_block *block)
{
	struct gp_pool *pool;
	bool is;

	if (!block->is_pinned)
		return true;
	pool = gp_addrmap_pool_of(&gp_state.pinned_map, block->start);
	is = pool && gp_pool_is_idle(pool);
	gp_pool_put(pool);
	return is;
}

/* Not what goes back to the driver at once, nor what somebody else may be looking at. */
static bool is_to_be_filled(const struct gp_zone_block *block)
{
	struct gp_block_info info;

	return gp_state.config.debug.poison && gp_state_kind() != GP_KIND_NONE && !gp_scope_no_caches &&
	       gp_pool_info(map_of(block->is_pinned), block->start, &info) == 0 && !info.is_retired;
}

/* A block that nobody uses any more and that is not free yet. False: it may yet be written to, by ourselves. */
static bool look_and_fill(struct gp_zone *zone)
{
	struct gp_zone_block *block = &zone->block;
	struct gp_debug_piece all = {block->start, block->end - block->start};
	int r;

	check(zone, GP_SEEN_AT_FREE);
	block->is_guarded = false;
	if (!is_to_be_filled(block))
		return true;
	r = gp_debug_io_poison(block->context, block->is_pinned, &all);
	block->is_filled = !r;
	add(&n_skipped, r != 0);
	return !r || r == -EBUSY;
}

static void note_free(struct gp_zone_block *block)
{
	struct gp_origin origin;

	block->is_freed = true;
	block->freed_ns = gp_driver_now_ns(NULL);
	if (!gp_origin_find(block->ptr, &origin))
		return;
	block->given = origin.given;
	block->freed = origin.freed;
}

/* The zone with what the program frees there, taken out; or NULL, and what to tell the pool instead. */
static struct gp_zone *claim(bool is_pinned, uint64_t ptr, uint64_t *ret_other)
{
	struct gp_zone *zone;
	bool is_held, is_block;

	gp_mutex_lock(&gp_zones_lock);
	zone = gp_zone_find_locked(ptr);
	is_held = zone && !zone->block.is_freed && zone->block.is_pinned == is_pinned;
	is_block = is_held && !zone->is_new && zone->block.ptr == ptr;
	/* Every block has a zone, so anything else is none, though the pool may take it for the address of one. */
	*ret_other = ptr + (ptr % GP_ALIGN == 0);
	if (is_block)
		gp_zone_remove_locked(zone);
	gp_mutex_unlock(&gp_zones_lock);
	return is_block ? zone : NULL;
}

/* The pool refused the free, so the block had no other owner meanwhile. */
static void leave_to_program(struct gp_zone *zone, uint64_t start, bool is_inserted)
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
 * The context is kept alive until the pool has the block back: else the address might be that of another's block, of a
 * context that has come since, before the pool is told of it.
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
		leave_to_program(zone, start, is_kept);
	else if (!is_kept)
		gp_zone_free(zone);
	gp_context_leave(context);
	gp_context_unref(context);
	return r;
}

int gp_debug_free(
	bool is_pinned, uint64_t ptr, bool is_waited, enum gp_free_mode mode, gp_debug_release_fn *release)
{
	uint64_t start_ns = gp_driver_now_ns(NULL), other;
	struct gp_zone *zone = claim(is_pinned, ptr, &other);
	int r;

	if (!zone)
		return release(map_of(is_pinned), other, mode);
	note_free(&zone->block);
	if (is_waited && is_out_of_use(&zone->block)) {
		if (!look_and_fill(zone) && mode == GP_FREE_SYNCED)
			mode = GP_FREE_NORMAL;
	} else {
		/* Its guards may be looked at before somebody gets it. */
		add(&n_skipped, gp_state.config.debug.poison);
	}
	r = give_to_pool(zone, mode, release);
	add(&spent_ns, gp_driver_now_ns(NULL) - start_ns);
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
	uint64_t start_ns = gp_driver_now_ns(NULL);
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
	add(&spent_ns, gp_driver_now_ns(NULL) - start_ns);
}

/* The next zone that is watched, from *at on; looked at with the lock held, and told of without. False: no more. */
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
	uint64_t start_ns = gp_driver_now_ns(NULL), at = 0;

	*ret = (struct gp_debug_survey){0};
	while (!ret->is_truncated && check_next(&at, ret)) {
		ret->ns = gp_driver_now_ns(NULL) - start_ns;
		ret->is_truncated = ret->ns >= CHECK_MAX_NS;
	}
	add(&spent_ns, ret->ns);
}
