/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Large blocks, while the GPU works in order: then a block may be had again as soon as its free is recorded, and the
 * next request is often for that very size. So the last few stay with the thread, which saves two ways through the
 * pool. They are no cache that the pool would have to do without: before a large request of any other size gets there,
 * they do; and at the next such free once the order has ended, or memory is short.
 */

#include <string.h>

#include "reuse.h"
#include "tcache_block.h"

/* To the pool, which is to choose from all that is free. */
static void give_back(struct gp_tcache *tc, bool is_at_free)
{
	bool needs_flush;

	gp_mutex_lock(&tc->pool->lock);
	gp_ownlock_enter(&tc->lock);
	gp_tcache_flush_large_locked(tc);
	gp_ownlock_leave(&tc->lock);
	needs_flush = is_at_free && gp_reuse_needs_flush_locked(tc->pool);
	gp_mutex_unlock(&tc->pool->lock);
	if (needs_flush)
		gp_reuse_flush(tc->pool, true);
}

/* The last one that served a request of that size, if it may be had. */
static struct gp_block *take_locked(struct gp_tcache *tc, uint64_t size)
{
	unsigned n = tc->n_large;
	struct gp_block *b;

	while (n && tc->large[n - 1].size != size)
		n--;
	b = n ? tc->large[n - 1].block : NULL;
	if (!b || b->stamp >= gp_tcache_usable_below(tc))
		return NULL;
	memmove(&tc->large[n - 1], &tc->large[n], (tc->n_large - n) * sizeof(tc->large[0]));
	tc->n_large--;
	tc->n_blocks--;
	tc->large_bytes -= b->size;
	return b;
}

struct gp_handed gp_tcache_take_large(struct gp_tcache *tc, uint64_t size, uint64_t bytes, uint32_t caller)
{
	struct gp_handed handed = {0};
	struct gp_block *b;
	bool is_any;

	gp_ownlock_enter(&tc->lock);
	is_any = tc->n_large != 0;
	b = take_locked(tc, size);
	if (b)
		handed = gp_tcache_hand_out(tc, b, bytes, caller);
	gp_ownlock_leave(&tc->lock);
	if (gp_unlikely(is_any && !b))
		give_back(tc, false);
	return handed;
}

static bool accept(struct gp_tcache *tc, const struct gp_recent *recent, bool *ret_is_full)
{
	bool is_taken = false;

	gp_ownlock_enter(&tc->lock);
	*ret_is_full = tc->n_large == GP_TCACHE_LARGE;
	if (!*ret_is_full && gp_tcache_claim_locked(tc, recent)) {
		gp_tcache_stamp_locked(tc, recent->block);
		tc->large[tc->n_large++] =
			(struct gp_large){.block = recent->block, .size = recent->size};
		tc->large_bytes += recent->block->size;
		is_taken = true;
	}
	gp_ownlock_leave(&tc->lock);
	return is_taken;
}

static bool is_any(struct gp_tcache *tc)
{
	bool is;

	gp_ownlock_enter(&tc->lock);
	is = tc->n_large != 0;
	gp_ownlock_leave(&tc->lock);
	return is;
}

bool gp_tcache_put_large(struct gp_tcache *tc, const struct gp_recent *recent, bool is_plenty)
{
	bool is_wanted = is_plenty && gp_fence_is_in_order(tc->fence), is_full = false;
	bool is_taken = is_wanted && accept(tc, recent, &is_full);

	/* Nor do those stay that came before. */
	if (is_full || (!is_wanted && is_any(tc)))
		give_back(tc, true);
	return is_taken || (is_full && accept(tc, recent, &is_full));
}
