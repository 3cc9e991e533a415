/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Checks every invariant of a pool by recomputing it from the blocks. For tests and debugging. */

#include "check.h"

#include "caches.h"
#include "kind.h"
#include "pool_impl.h"
#include "pool/vmm/arena_check.h"

struct totals {
	uint64_t used, cached, pending, retained, total, stream, accounted;
	uint64_t n_used, n_cached, n_pending, n_retained, n_indexed, n_undersized, n_unfenced, n_stream;
};

#define EXPECT(cond, what)           \
	do {                         \
		if (!(cond))         \
			return what; \
	} while (0)

/* True if the block was cut for a large request. */
static bool is_paged(const struct gp_segment *s, const struct gp_block *b)
{
	return s->kind->is_cut && b->size > GP_SMALL_MAX;
}

/* True if the pool counts the block as one that the program holds in stream order. */
static bool is_held_in_order(const struct gp_block *b)
{
	enum gp_block_state state = gp_block_state(b);

	return b->flags & GP_BLOCK_STREAM &&
	       (state == GP_BLOCK_USED || state == GP_BLOCK_TCACHED || state == GP_BLOCK_FREEING);
}

static const char *check_block(const struct gp_segment *s, const struct gp_block *b, struct totals *t)
{
	bool is_guard = b->flags & GP_BLOCK_GUARD;

	EXPECT(b->segment == s, "a block refers to another segment");
	EXPECT(b->size > 0 && b->size % GP_ALIGN == 0, "a block's size is not a multiple of the alignment");
	EXPECT(!b->next || b->next->prev == b, "a block and the next one are not linked to each other");
	EXPECT(!is_guard || (b == s->first && b->next), "a guard is not the first of several blocks");
	EXPECT(!gp_block_account(b) || is_held_in_order(b), "a block that is not held in stream order has an account");
	switch (gp_block_state(b)) {
	case GP_BLOCK_TCACHED:
	case GP_BLOCK_USED:
		EXPECT(gp_block_requested(b) <= b->size, "a block is smaller than its request");
		EXPECT(s->arena || gp_block_is_whole(b) || b->addr != s->base,
			"a shared segment's base was handed out");
		EXPECT(!is_paged(s, b) || (b->addr - s->base) % s->pool->options.page_bytes == 0,
			"a large block does not begin at a page of its segment");
		t->used += b->size;
		t->n_used++;
		t->stream += b->flags & GP_BLOCK_STREAM ? b->size : 0;
		t->accounted += gp_block_account(b) ? b->size : 0;
		return NULL;
	case GP_BLOCK_CACHED:
		EXPECT(!b->prev || gp_block_state(b->prev) != GP_BLOCK_CACHED || (b->prev->flags & GP_BLOCK_GUARD) ||
				gp_block_is_exported(b) || gp_block_is_exported(b->prev),
			"two cached neighbours were not merged");
		t->cached += b->size;
		t->n_cached++;
		t->n_indexed += !is_guard && !gp_block_is_retired(b) && s->pool->options.kind != GP_KIND_NONE;
		return NULL;
	case GP_BLOCK_RETAINED:
		EXPECT(b->flags & GP_BLOCK_CAPTURED && b->captured.retainer, "a retained block has no retainer");
		t->retained += b->size;
		t->n_retained++;
		t->pending += b->size;
		t->n_pending++;
		return NULL;
	case GP_BLOCK_PENDING:
		EXPECT(!(b->flags & GP_BLOCK_STREAM) || (b->flags & GP_BLOCK_UNFENCED),
			"a block freed in stream order is not unfenced");
		EXPECT(!(b->flags & GP_BLOCK_STREAM) || b->seq >= s->pool->pending.stream_seq_min,
			"a block freed in stream order would not be polled");
		t->pending += b->size;
		t->n_pending++;
		t->n_unfenced += !!(b->flags & GP_BLOCK_UNFENCED);
		t->n_stream += !!(b->flags & GP_BLOCK_STREAM);
		return NULL;
	case GP_BLOCK_UNMAPPED:
		EXPECT(s->arena, "an unmapped gap outside an arena");
		t->total -= b->size;
		return NULL;
	default:
		return "a block is in a transient state";
	}
}

static const char *check_segment(struct gp_pool *pool, struct gp_segment *s, struct totals *t)
{
	uint64_t at = s->base;
	bool is_idle = !gp_list_is_empty(&s->idle_link);
	struct gp_block *b;

	EXPECT(s->first && !s->first->prev, "a segment does not begin with its first block");
	for (b = s->first; b; b = b->next) {
		const char *broken = check_block(s, b, t);

		if (broken)
			return broken;
		EXPECT(b->addr == at, "the blocks of a segment overlap or leave a gap");
		at += b->size;
	}
	EXPECT(at == s->base + s->size, "the blocks of a segment do not end where it ends");
	EXPECT(gp_addrmap_segment_of(pool->options.map, s->base + s->size - 1) == s, "the map does not find a segment");
	b = s->first;
	EXPECT(is_idle == (gp_block_is_whole(b) && gp_block_state(b) == GP_BLOCK_CACHED),
		"a segment is listed as idle but not wholly cached, or the reverse");
	EXPECT(!is_idle || pool->options.kind != GP_KIND_NONE || !gp_list_is_empty(&pool->leaving),
		"the kind none keeps cached memory");
	t->total += s->size;
	t->n_undersized += s->is_undersized;
	return NULL;
}

static uint64_t count_indexed(const struct gp_pool *pool)
{
	const struct gp_kind_ops *first = pool->first_kind, *now = gp_pool_kind(pool);

	return first->count(pool) + (now != first ? now->count(pool) : 0);
}

static const char *check_locked(struct gp_pool *pool)
{
	const struct gp_stats *stats = &pool->stats;
	struct gp_stats counted = *stats;
	struct totals t = {0};
	struct gp_list *link;

	gp_list_each(link, &pool->segments) {
		const char *broken = check_segment(pool, gp_container_of(link, struct gp_segment, link), &t);

		if (broken)
			return broken;
	}
	EXPECT(t.used == stats->used_bytes && t.n_used == stats->n_used_blocks, "used is miscounted");
	EXPECT(t.cached == stats->cached_bytes && t.n_cached == stats->n_cached_blocks, "cached is miscounted");
	EXPECT(t.pending == stats->pending_bytes && t.n_pending == stats->n_pending_blocks, "pending is miscounted");
	EXPECT(t.retained == stats->retained_bytes, "retained is miscounted");
	EXPECT(t.pending == pool->pending.bytes + t.retained && t.n_pending == pool->pending.count + t.n_retained,
		"the queue is miscounted");
	EXPECT(t.n_unfenced == pool->pending.n_unfenced && t.n_stream == pool->pending.n_stream,
		"unfenced blocks are miscounted");
	EXPECT(t.stream == stats->stream_bytes, "what was allocated in stream order is miscounted");
	EXPECT(t.accounted == pool->accounted_bytes, "what counts for accounts is miscounted");
	EXPECT(t.n_undersized == pool->n_undersized, "undersized segments are miscounted");
	EXPECT(t.n_indexed == count_indexed(pool), "the index does not match the cached blocks");
	EXPECT(stats->total_bytes == t.total + stats->returning_bytes, "total is miscounted");
	EXPECT(stats->total_bytes ==
			stats->used_bytes + stats->pending_bytes + stats->cached_bytes + stats->returning_bytes,
		"total is not used + pending + cached + returning");
	if (pool->cache.vm) {
		const char *broken = gp_arena_check_locked(pool);

		if (broken)
			return broken;
	}
	gp_caches_count_locked(pool, &counted);
	EXPECT(counted.requested_bytes <= counted.used_bytes, "the requested bytes exceed the used bytes");
	EXPECT(stats->total_bytes - stats->spilled_bytes <= atomic_load(&pool->options.budget->charged_bytes),
		"the budget is undercharged");
	return NULL;
}

const char *gp_pool_check(struct gp_pool *pool)
{
	const char *broken;

	gp_mutex_lock(&pool->lock);
	broken = check_locked(pool);
	gp_mutex_unlock(&pool->lock);
	return broken;
}
