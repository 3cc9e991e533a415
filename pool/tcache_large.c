/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Large blocks in serial mode. A block may be handed out again there as soon as its free is recorded, and the next
 * request is often for exactly that size. So the last few blocks stay with the thread, which saves two calls into the
 * pool. They are flushed before the pool could need them:
 *
 *   - before a large request of another size reaches the pool;
 *   - at the next large free once serial mode has ended, or memory is short.
 */

#include "tcache_large.h"

#include <string.h>

#include "reuse.h"
#include "tcache_impl.h"

/* Flushes the large blocks, so that the pool can choose from all free memory. */
static void flush_large(struct gp_tcache *tc, bool is_at_free)
{
	bool needs_flush;

	gp_mutex_lock(&tc->pool->lock);
	gp_ownlock_enter(&tc->cache.lock);
	gp_tcache_flush_large_locked(tc);
	gp_ownlock_leave(&tc->cache.lock);
	needs_flush = is_at_free && gp_reuse_needs_flush_locked(tc->pool);
	gp_mutex_unlock(&tc->pool->lock);
	if (needs_flush)
		gp_reuse_flush_at_free(tc->pool, gp_fence_seq(tc->fence));
}

/* Takes the last block that served a request of that size, if it may be handed out. */
static struct gp_block *take_locked(struct gp_tcache *tc, uint64_t size)
{
	unsigned n = tc->n_large;
	struct gp_block *b;

	while (n && tc->large[n - 1].size != size)
		n--;
	b = n ? tc->large[n - 1].block : NULL;
	if (!b || b->seq >= gp_tcache_usable_below(tc))
		return NULL;
	tc->n_large--;
	if (gp_unlikely(n - 1 != tc->n_large))
		memmove(&tc->large[n - 1], &tc->large[n], (tc->n_large - (n - 1)) * sizeof(tc->large[0]));
	gp_tcache_count(&tc->cache.large_bytes, -b->size);
	return b;
}

struct gp_claim_token gp_tcache_take_large(struct gp_tcache *tc, uint64_t size, uint64_t bytes, uint32_t module)
{
	struct gp_claim_token token = {0};
	struct gp_block *b;
	bool is_any;

	gp_ownlock_enter(&tc->cache.lock);
	is_any = tc->n_large != 0;
	b = take_locked(tc, size);
	if (b)
		token = gp_tcache_hand_out(tc, b, bytes, module);
	gp_ownlock_leave(&tc->cache.lock);
	if (gp_unlikely(is_any && !b))
		flush_large(tc, false);
	return token;
}

static bool accept(struct gp_tcache *tc, const struct gp_recent *recent, bool *ret_is_full)
{
	bool is_taken = false;

	gp_ownlock_enter(&tc->cache.lock);
	*ret_is_full = tc->n_large == GP_TCACHE_LARGE;
	if (!*ret_is_full && gp_tcache_claim_locked(tc, recent)) {
		gp_tcache_set_seq_locked(tc, recent->block);
		tc->large[tc->n_large++] = (struct gp_large){.block = recent->block, .size = recent->size};
		gp_tcache_count(&tc->cache.large_bytes, recent->block->size);
		is_taken = true;
	}
	gp_ownlock_leave(&tc->cache.lock);
	return is_taken;
}

static bool is_any(struct gp_tcache *tc)
{
	bool has_blocks;

	gp_ownlock_enter(&tc->cache.lock);
	has_blocks = tc->n_large != 0;
	gp_ownlock_leave(&tc->cache.lock);
	return has_blocks;
}

bool gp_tcache_put_large(struct gp_tcache *tc, const struct gp_recent *recent, bool can_pool_grow)
{
	bool is_wanted = can_pool_grow && gp_fence_is_serial(tc->fence), is_full = false;
	bool is_taken = is_wanted && accept(tc, recent, &is_full);

	/* Flush the earlier blocks, too. */
	if (is_full || (!is_wanted && is_any(tc)))
		flush_large(tc, true);
	return is_taken || (is_full && accept(tc, recent, &is_full));
}
