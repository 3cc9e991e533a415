/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Blocks that a thread has freed in stream order and will soon allocate again on the same stream. They need no fence:
 * the work of the next owner follows that of the last one on the stream. So a pair of an allocation and a free takes
 * no lock of the pool. Both must be made by the same thread, for the same size and account, on the same stream.
 *
 * A block leaves the cache with all other blocks of thread caches, before the pool grows (caches.h), or when the cache
 * is full and a newer block comes. Large blocks also leave it when the thread asks for a large block of another size or
 * stream. In the pool the best of all blocks serves the request, and those of split and vmm merge: otherwise conv of
 * tests/traces would need 5 % more memory in stream order (tests/bench/peaks.py). A block that has left waits in the
 * pool's queue as if it had been freed there, with the stream and the fence sequence of its free.
 *
 * The pool counts these blocks as used, and as allocated in stream order.
 */

#include "tcache_stream.h"

#include <errno.h>
#include <string.h>

#include "addrmap.h"
#include "handover.h"
#include "reuse.h"
#include "tcache_impl.h"

static uint64_t size_of(uint64_t bytes)
{
	return (bytes + GP_ALIGN - 1) & ~(uint64_t)(GP_ALIGN - 1);
}

/*
 * Block addresses are multiples of GP_ALIGN. The cache remembers a block that it handed out in stream order under
 * another number, so that gp_tcache_put does not take it.
 */
static uint64_t key_of(uint64_t addr)
{
	return addr | 1;
}

/* Counts a block that comes, or goes with the negative of its size. */
static void count(struct gp_tcache *tc, const struct gp_block *block, uint64_t bytes)
{
	gp_tcache_count(gp_block_account(block) ? &tc->cache.account_bytes : &tc->cache.stream_bytes, bytes);
}

/* Takes an entry out, and keeps the order of the others. */
static struct gp_block *take_nth_locked(struct gp_tcache *tc, unsigned n)
{
	struct gp_block *b = tc->streamed[n].block;

	count(tc, b, -b->size);
	tc->n_streamed--;
	if (gp_unlikely(n != tc->n_streamed))
		memmove(&tc->streamed[n], &tc->streamed[n + 1], (tc->n_streamed - n) * sizeof(tc->streamed[0]));
	return b;
}

/* Returns the newest block that fits, or NULL. */
static struct gp_block *take_locked(struct gp_tcache *tc, uint64_t size, uint64_t stream, unsigned account)
{
	for (unsigned n = tc->n_streamed; n--;)
		if (tc->streamed[n].size == size && tc->streamed[n].stream == stream &&
			tc->streamed[n].account == account)
			return take_nth_locked(tc, n);
	return NULL;
}

uint64_t gp_tcache_take_on(struct gp_tcache *tc, uint64_t bytes, uint64_t stream, uint32_t module, unsigned account)
{
	uint64_t size = size_of(bytes);
	struct gp_claim_token token;
	struct gp_block *b;

	if (gp_unlikely(!bytes || !gp_ownlock_enter_if_open(&tc->cache.lock)))
		return 0;
	b = take_locked(tc, size, stream, account);
	if (gp_unlikely(!b)) {
		gp_ownlock_leave(&tc->cache.lock);
		return 0;
	}
	gp_pool_charge_account(tc->pool, b);
	token = gp_tcache_hand_out_as(tc, b, bytes, module, &tc->stream_serials);
	gp_ownlock_leave(&tc->cache.lock);
	gp_tcache_remember(tc, &token, key_of(token.addr), size);
	return token.addr;
}

/* Adds a claimed block that was allocated in stream order. */
static void add_locked(struct gp_tcache *tc, struct gp_block *block, uint64_t stream)
{
	block->seq =
		gp_fence_started(tc->fence); /* the stream may still use the block, so an earlier fence does not do */
	tc->requested -= gp_block_requested(block);
	gp_pool_uncharge_account(tc->pool, block);
	tc->streamed[tc->n_streamed++] = (struct gp_streamed){
		.block = block,
		.stream = stream,
		.size = size_of(gp_block_requested(block)),
		.account = gp_block_account(block),
	};
	count(tc, block, block->size);
}

/*
 * True if the cache has room for another block of that size, and memory is not short. The limit of pending bytes holds
 * for these blocks, too.
 */
static inline bool has_room_locked(const struct gp_tcache *tc, uint64_t size)
{
	uint64_t bytes = gp_tcache_streamed_bytes(tc);

	return tc->n_streamed < GP_TCACHE_STREAMED && bytes + size <= gp_pool_pending_max(tc->pool) &&
	       gp_tcache_can_pool_grow(tc) && gp_tcache_is_open_locked(tc);
}

/* True if the pool counts the block as allocated in stream order, and it need not go elsewhere. */
static inline bool is_keepable(const struct gp_block *block)
{
	return (block->flags & (GP_BLOCK_STREAM | GP_BLOCK_UNCACHED | GP_BLOCK_CAPTURED)) == GP_BLOCK_STREAM;
}

static bool accept_locked(struct gp_tcache *tc, const struct gp_recent *recent, uint64_t stream)
{
	struct gp_block *b = recent->block;

	if (gp_unlikely(!has_room_locked(tc, recent->size) || !gp_tcache_claim_locked(tc, recent)))
		return false;
	if (gp_unlikely(!is_keepable(b))) {
		atomic_store_explicit(&b->word, recent->word, memory_order_release);
		return false;
	}
	add_locked(tc, b, stream);
	return true;
}

bool gp_tcache_put_on(struct gp_tcache *tc, uint64_t addr, uint64_t stream)
{
	struct gp_recent *recent = gp_tcache_recent(tc, addr);
	bool is_accepted;

	if (recent->addr != key_of(addr))
		recent++;
	if (gp_unlikely(recent->addr != key_of(addr) || !gp_ownlock_enter_if_open(&tc->cache.lock)))
		return false;
	is_accepted = accept_locked(tc, recent, stream);
	gp_ownlock_leave(&tc->cache.lock);
	if (is_accepted)
		recent->addr = 0;
	return is_accepted;
}

/*
 * Moves those of the n oldest blocks into the pool's queue that served requests of at least `least` bytes. Returns
 * their number. Requires both locks.
 */
static unsigned flush_oldest_locked(struct gp_tcache *tc, unsigned n, uint64_t least)
{
	unsigned n_kept = 0;

	for (unsigned i = 0; i < n; i++) {
		struct gp_block *b = tc->streamed[i].block;

		if (tc->streamed[i].size < least) {
			tc->streamed[n_kept++] = tc->streamed[i];
			continue;
		}
		tc->requested += gp_block_requested(b); /* offsets what the pool subtracts: the free did so, too */
		count(tc, b, -b->size);
		gp_pool_queue_locked(tc->pool, b, true, tc->streamed[i].stream);
	}
	tc->n_streamed -= n - n_kept;
	memmove(&tc->streamed[n_kept], &tc->streamed[n], (tc->n_streamed - n_kept) * sizeof(tc->streamed[0]));
	return n - n_kept;
}

uint64_t gp_tcache_flush_streams_locked(struct gp_tcache *tc)
{
	return flush_oldest_locked(tc, tc->n_streamed, 0);
}

/*
 * Moves blocks to the pool: all large ones, or else the older half if the cache is full. Returns whether any moved:
 * other threads may have emptied or closed the cache.
 */
static bool spill(struct gp_tcache *tc, bool is_for_large)
{
	bool is_spilled, needs_flush;
	unsigned n;

	gp_mutex_lock(&tc->pool->lock);
	gp_ownlock_enter(&tc->cache.lock);
	n = is_for_large ? tc->n_streamed : tc->n_streamed == GP_TCACHE_STREAMED ? GP_TCACHE_STREAMED / 2 : 0;
	is_spilled = gp_tcache_is_open_locked(tc) && flush_oldest_locked(tc, n, is_for_large ? GP_SMALL_MAX + 1 : 0);
	gp_ownlock_leave(&tc->cache.lock);
	needs_flush = is_spilled && gp_reuse_needs_flush_locked(tc->pool);
	gp_mutex_unlock(&tc->pool->lock);
	if (needs_flush)
		(void)gp_reuse_flush(tc->pool, false);
	return is_spilled;
}

static bool has_large(struct gp_tcache *tc)
{
	bool is_any = false;

	gp_ownlock_enter(&tc->cache.lock);
	for (unsigned i = 0; i < tc->n_streamed && !is_any; i++)
		is_any = tc->streamed[i].size > GP_SMALL_MAX;
	gp_ownlock_leave(&tc->cache.lock);
	return is_any;
}

uint64_t gp_tcache_alloc_on(struct gp_tcache *tc, uint64_t bytes, uint64_t stream, uint32_t module, unsigned account)
{
	uint64_t addr = gp_tcache_take_on(tc, bytes, stream, module, account);

	if (gp_likely(addr))
		return addr;
	if (bytes > GP_SMALL_MAX && has_large(tc))
		(void)spill(tc, true);
	return gp_pool_take_on(tc->pool, bytes, stream, module, account);
}

/*
 * Keeps a claimed block. A block may be retired at any time, and caches are flushed after that. Stores whether the
 * cache was full: other threads may flush it, so it is looked at under its lock.
 */
static bool keep(struct gp_tcache *tc, struct gp_block *block, uint64_t stream, bool *ret_was_full)
{
	bool is_kept;

	gp_ownlock_enter(&tc->cache.lock);
	*ret_was_full = tc->n_streamed == GP_TCACHE_STREAMED;
	is_kept = has_room_locked(tc, block->size) && is_keepable(block) && !gp_block_is_retired(block);
	if (is_kept) {
		gp_block_set_state(block, GP_BLOCK_TCACHED);
		add_locked(tc, block, stream);
	}
	gp_ownlock_leave(&tc->cache.lock);
	return is_kept;
}

int gp_tcache_free_on(struct gp_addrmap *map, uint64_t addr, uint64_t stream, struct gp_tcache *tc)
{
	struct gp_block *block = gp_addrmap_try_claim(map, addr, tc->pool);
	bool was_full;

	if (gp_unlikely(!block))
		return -ENOENT;
	if (keep(tc, block, stream, &was_full))
		return 0;
	/* The thread may use the streams of the older blocks no more. */
	if (was_full && spill(tc, false) && keep(tc, block, stream, &was_full))
		return 0;
	return gp_pool_take_back_on(tc->pool, block, stream);
}
