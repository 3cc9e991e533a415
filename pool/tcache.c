/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * A free finds its block without a search of the pool: the cache remembers, by address, the blocks that the thread was
 * given last, each with the claim token of that hand-out. If another thread has freed the block meanwhile, its word
 * differs from the token, and the block is left alone.
 */

#include "tcache.h"

#include <errno.h>

#include "kind.h"
#include "ladder.h"
#include "reuse.h"
#include "tcache_impl.h"
#include "tcache_large.h"

static struct gp_bin *bin_of(struct gp_tcache *tc, uint64_t size)
{
	return &tc->bins[gp_bin_index(size)];
}

static bool is_fit(const struct gp_tcache *tc, const struct gp_request *request, uint64_t size)
{
	return size == request->size ||
	       (size > request->size && size <= request->kind->largest_fit(tc->pool, request->size));
}

/* True if the bin has no room. */
static bool is_full(const struct gp_bin *bin)
{
	return bin->count >= bin->depth;
}

struct gp_pool *gp_tcache_pool(const struct gp_tcache *tc)
{
	return tc->pool;
}

bool gp_tcache_is_dead(const struct gp_tcache *tc)
{
	return gp_flag_is_set(&tc->pool->dead);
}

/* The ways in which a bin can serve a request. */
enum offer { NOTHING, USABLE, COVERED, NOT_COVERED };

static enum offer offer_of(const struct gp_tcache *tc, const struct gp_block *block)
{
	if (gp_likely(block->seq < gp_tcache_usable_below(tc)))
		return USABLE;
	return block->seq < gp_fence_published(tc->fence) ? COVERED : NOT_COVERED;
}

static inline struct gp_claim_token hand_out(
	struct gp_tcache *tc, struct gp_bin *bin, unsigned n, uint64_t bytes, uint32_t module)
{
	return gp_tcache_hand_out(tc, gp_tcache_take_nth(tc, bin, n), bytes, module);
}

static inline bool is_near_fit(const struct gp_block *block, uint64_t size, uint64_t slack, uint64_t usable_below)
{
	return block->size - size <= slack && block->seq < usable_below;
}

/*
 * Serves nearly every allocation: takes the newest block of the bin if it may be handed out, since its fields are still
 * in the processor's caches; otherwise the oldest. Most blocks have exactly the requested size, or nearly.
 */
static inline struct gp_claim_token take_first_locked(
	struct gp_tcache *tc, uint64_t size, uint64_t slack, uint64_t bytes, uint32_t module)
{
	struct gp_bin *bin = bin_of(tc, size);
	uint64_t usable_below = gp_tcache_usable_below(tc);
	struct gp_block *b = NULL;

	if (gp_unlikely(!bin->count))
		return (struct gp_claim_token){0};
	if (gp_likely(is_near_fit(*gp_bin_at(bin, bin->count - 1), size, slack, usable_below)))
		b = gp_tcache_take_newest(tc, bin);
	else if (is_near_fit(*gp_bin_at(bin, 0), size, slack, usable_below))
		b = gp_tcache_take_nth(tc, bin, 0);
	return gp_likely(b) ? gp_tcache_hand_out(tc, b, bytes, module) : (struct gp_claim_token){0};
}

/* Returns the position of the oldest block of at most size_max bytes that fits, or count if none does. */
static unsigned find_fit_locked(
	const struct gp_tcache *tc, struct gp_bin *bin, const struct gp_request *request, uint64_t size_max)
{
	unsigned n = 0;

	for (; n < bin->count; n++) {
		uint64_t size = (*gp_bin_at(bin, n))->size;

		if (size <= size_max && is_fit(tc, request, size))
			break;
	}
	return n;
}

/*
 * Takes the oldest block that fits, if it may be handed out; otherwise returns in *ret_seq what a fence must cover
 * first.
 */
static enum offer take(
	struct gp_tcache *tc, const struct gp_request *request, uint64_t *ret_seq, struct gp_claim_token *ret_token)
{
	struct gp_bin *bin = bin_of(tc, request->size);
	enum offer offer = NOTHING;
	unsigned n;

	gp_ownlock_enter(&tc->cache.lock);
	n = find_fit_locked(tc, bin, request, UINT64_MAX);
	if (gp_likely(n < bin->count)) {
		offer = offer_of(tc, *gp_bin_at(bin, n));
		*ret_seq = (*gp_bin_at(bin, n))->seq;
	}
	if (gp_likely(offer == USABLE))
		*ret_token = hand_out(tc, bin, n, request->bytes, request->module);
	gp_ownlock_leave(&tc->cache.lock);
	return offer;
}

/*
 * Takes a usable block from the next bin, whose sizes are larger by up to a quarter. Blocks larger than that bin's
 * sizes are left: they got there in this way, and would go on to ever smaller requests.
 */
static struct gp_claim_token take_larger(struct gp_tcache *tc, const struct gp_request *request)
{
	unsigned i = gp_bin_index(request->size) + 1, n;
	struct gp_bin *bin = &tc->bins[i];
	struct gp_claim_token token = {0};

	if (i == GP_TCACHE_BINS)
		return token;
	gp_ownlock_enter(&tc->cache.lock);
	n = find_fit_locked(tc, bin, request, gp_bin_size_max(i));
	if (n < bin->count && offer_of(tc, *gp_bin_at(bin, n)) == USABLE)
		token = hand_out(tc, bin, n, request->bytes, request->module);
	gp_ownlock_leave(&tc->cache.lock);
	return token;
}

/* Records one fence for all blocks in the cache; one of another thread will do. */
static int record(struct gp_tcache *tc, bool is_at_free)
{
	return gp_fence_record(tc->fence, tc->newest_seq, is_at_free);
}

/*
 * Returns the bytes by which the pool should grow so that a bin can fill; 0: growing is not worth it. It is worth it
 *
 *   - after 16 fences for this bin, and each time their number has doubled;
 *   - after every 16 fences, while the pool's growth for this bin stays below 2 MiB or 4 blocks. This is for pools that
 *     grow by a block at a time, until the bin has what other kinds grow by at once.
 */
static uint64_t growth_due(const struct gp_tcache *tc, const struct gp_bin *bin, const struct gp_request *request)
{
	unsigned n = bin->n_fences + 1;
	uint64_t step;
	bool is_worth_it;

	if (n % GP_TCACHE_GROW_AFTER)
		return 0;
	gp_mutex_lock(&tc->pool->lock);
	step = request->kind->segment_bytes(tc->pool, request->size);
	gp_mutex_unlock(&tc->pool->lock);
	is_worth_it = (n & (n - 1)) == 0 ||
		      bin->grown_bytes + step <= gp_max(GP_TCACHE_GROWN_MAX, GP_TCACHE_GROWN_BLOCKS * request->size);
	return is_worth_it ? step : 0;
}

/*
 * All blocks of the bin were freed without a fence, and there are no more. In serial mode a fence at the free of the
 * last one would have been enough, so record it then next time.
 */
static void fence_earlier(struct gp_tcache *tc, struct gp_bin *bin)
{
	gp_ownlock_enter(&tc->cache.lock);
	if (gp_fence_is_serial(tc->fence) && bin->count)
		bin->due = bin->count;
	gp_ownlock_leave(&tc->cache.lock);
}

/*
 * Returns the size for a small request: unless memory is short, a block is cut large enough for every request of its
 * bin.
 */
static uint64_t size_to_keep(const struct gp_tcache *tc, const struct gp_request *request)
{
	uint64_t size = gp_bin_size_max(gp_bin_index(request->size));

	return request->kind->is_cut && size <= tc->size_max && gp_tcache_can_pool_grow(tc) ? size : request->size;
}

/*
 * Serves a small request. If no fence covers the blocks of the bin, the request is served by the pool while it has a
 * block, so that more blocks share the next fence. After that a fence for few blocks is better than a larger pool.
 */
static int alloc_small(struct gp_tcache *tc, struct gp_request *request, struct gp_claim_token *ret_token)
{
	uint64_t seq = 0, step;
	enum offer offer = take(tc, request, &seq, ret_token);
	struct gp_bin *bin;
	int r;

	if (gp_likely(offer == USABLE))
		return 0;
	/* While another thread holds the pool's lock, a block that is too large is better than a wait for the lock. */
	if (offer == NOTHING && gp_mutex_is_busy(&tc->pool->lock))
		*ret_token = take_larger(tc, request);
	if (ret_token->block)
		return 0;
	if (offer == NOT_COVERED) {
		request->step = GP_STEP_pool;
		*ret_token = gp_reuse_take(tc->pool, request);
		if (ret_token->block)
			return 0;
		bin = bin_of(tc, request->size);
		step = growth_due(tc, bin, request);
		if (step && request->end && request->end <= GP_STEP_grow)
			return -EAGAIN;
		/* A larger pool is worth more here than the blocks of other threads. */
		request->skips |= step ? GP_SKIP(flush) : 0;
		bin->n_fences++;
		bin->grown_bytes += step;
		fence_earlier(tc, bin);
		r = step ? 0 : record(tc, false);
		if (r > 0)
			return r;
	}
	if (offer != NOTHING && gp_fence_poll_seq(tc->fence, seq) == 0 && take(tc, request, &seq, ret_token) == USABLE)
		return 0;
	request->size = size_to_keep(tc, request);
	return gp_ladder_climb(tc->pool, request, ret_token);
}

/* The steps of the pool, after those of the cache. */
static int climb(struct gp_tcache *tc, struct gp_request *request, struct gp_claim_token *ret_token)
{
	if (request->size > tc->size_max)
		return gp_ladder_climb(tc->pool, request, ret_token);
	if (request->first <= GP_STEP_pool)
		return alloc_small(tc, request, ret_token);
	request->size = size_to_keep(tc, request);
	return gp_ladder_climb(tc->pool, request, ret_token);
}

/* As gp_tcache_take, for any size and kind; waits for the lock. */
static __attribute__((noinline)) uint64_t take_slow(struct gp_tcache *tc, uint64_t bytes, uint32_t module)
{
	const struct gp_kind_ops *kind = gp_pool_kind(tc->pool);
	struct gp_claim_token token;
	int saved_errno = errno;
	uint64_t size = kind->round(tc->pool, bytes);

	if (size > tc->size_max) {
		token = gp_tcache_take_large(tc, size, bytes, module);
	} else {
		gp_ownlock_enter(&tc->cache.lock);
		token = take_first_locked(tc, size, kind->is_cut ? size / 8 : 0, bytes, module);
		gp_ownlock_leave(&tc->cache.lock);
	}
	if (token.block)
		gp_tcache_remember(tc, &token, token.addr, size);
	errno = saved_errno;
	return token.addr;
}

/* True if the cache certainly has no block for a request of that size. */
static inline bool is_certain_miss(const struct gp_tcache *tc, uint64_t bytes)
{
	return !bytes || (bytes > tc->size_max && !gp_tcache_large_bytes(tc));
}

/*
 * Calls only take_slow, at its end, so that the compiler need not save registers. Kinds that cut blocks have blocks of
 * any size; the others go through take_slow.
 */
uint64_t gp_tcache_take(struct gp_tcache *tc, uint64_t bytes, uint32_t module)
{
	uint64_t size = (bytes + GP_ALIGN - 1) & ~(uint64_t)(GP_ALIGN - 1);
	struct gp_claim_token token;

	if (gp_unlikely(bytes - 1 >= tc->size_max || !gp_pool_kind(tc->pool)->is_cut ||
			!gp_ownlock_enter_if_open(&tc->cache.lock)))
		return is_certain_miss(tc, bytes) ? 0 : take_slow(tc, bytes, module);
	token = take_first_locked(tc, size, size / 8, bytes, module);
	gp_ownlock_leave(&tc->cache.lock);
	if (gp_likely(token.block))
		gp_tcache_remember(tc, &token, token.addr, size);
	return token.addr;
}

int gp_tcache_alloc_with(
	struct gp_tcache *tc, uint64_t bytes, const struct gp_alloc_options *options, uint64_t *ret_addr)
{
	struct gp_request request = gp_request_of(tc->pool, bytes);
	bool is_small = request.size <= tc->size_max;
	struct gp_claim_token token = {0};
	int r;

	request.module = options->module;
	request.first = options->first;
	request.end = options->end;
	request.ret_failure = options->ret_failure;
	r = climb(tc, &request, &token);
	if (r)
		return r;
	/* A large undersized block is indexed by its own size, which only the pool looks at. */
	if (is_small || (gp_fence_is_serial(tc->fence) && token.size >= request.size))
		gp_tcache_remember(tc, &token, token.addr, request.size);
	*ret_addr = token.addr;
	return 0;
}

int gp_tcache_alloc(struct gp_tcache *tc, uint64_t bytes, uint32_t module, uint64_t *ret_addr)
{
	uint64_t addr = gp_tcache_take(tc, bytes, module);

	if (gp_unlikely(!addr))
		return gp_tcache_alloc_with(tc, bytes, &(struct gp_alloc_options){.module = module}, ret_addr);
	*ret_addr = addr;
	return 0;
}

/* bytes: what the cache holds now. */
static inline void put_locked(struct gp_tcache *tc, struct gp_bin *bin, struct gp_block *block, uint64_t bytes)
{
	uint64_t published = gp_fence_published(tc->fence);

	if (gp_unlikely(tc->published != published)) {
		tc->published = published;
		tc->n_uncovered = 0;
	}
	gp_tcache_set_seq_locked(tc, block);
	*gp_bin_at(bin, bin->count++) = block;
	atomic_store_explicit(&tc->cache.bytes, bytes + block->size, memory_order_relaxed);
	tc->n_uncovered += block->seq >= published;
}

/*
 * When a fence is due: soon, if enough blocks have come together; now, if other threads were in the way for long or the
 * bin needs one.
 */
enum due { NOT_DUE, DUE_SOON, DUE_NOW, REFUSED };

static inline enum due record_due_locked(const struct gp_tcache *tc, struct gp_bin *bin)
{
	if (gp_unlikely(bin->count >= bin->due && (*gp_bin_at(bin, 0))->seq >= tc->published)) {
		bin->n_fences += bin->due < bin->depth;
		/*
		 * Now and then let the bin fill without a fence: this tests whether a larger pool is worth it, or has
		 * come about.
		 */
		if (bin->n_fences % GP_TCACHE_GROW_AFTER == GP_TCACHE_GROW_AFTER - 1)
			bin->due = bin->depth;
		return DUE_NOW;
	}
	if (gp_likely(tc->n_uncovered < GP_TCACHE_RECORD_AFTER))
		return NOT_DUE;
	return tc->n_uncovered < 2 * GP_TCACHE_RECORD_AFTER ? DUE_SOON : DUE_NOW;
}

/*
 * Moves a block from the program into its bin. REFUSED if the bin has no room or the program does not hold the block.
 */
static inline enum due accept_locked(struct gp_tcache *tc, struct gp_recent *recent)
{
	struct gp_bin *bin = bin_of(tc, recent->size);
	uint64_t bytes = gp_tcache_bytes(tc);

	if (gp_unlikely(is_full(bin) || bytes + recent->size > tc->bytes_max || !gp_tcache_claim_locked(tc, recent)))
		return REFUSED;
	recent->addr = 0;
	put_locked(tc, bin, recent->block, bytes);
	return record_due_locked(tc, bin);
}

static enum due accept(struct gp_tcache *tc, struct gp_recent *recent)
{
	enum due due;

	gp_ownlock_enter(&tc->cache.lock);
	due = accept_locked(tc, recent);
	gp_ownlock_leave(&tc->cache.lock);
	return due;
}

/* Returns the bin of a refused block if that bin is full, or NULL. Counts the refusal if the whole cache is full. */
static struct gp_bin *find_full(struct gp_tcache *tc, uint64_t size)
{
	struct gp_bin *bin = bin_of(tc, size);
	bool is_bin_full;

	gp_ownlock_enter(&tc->cache.lock);
	is_bin_full = is_full(bin);
	if (gp_tcache_bytes(tc) + size > tc->bytes_max)
		tc->n_refused++;
	gp_ownlock_leave(&tc->cache.lock);
	return is_bin_full ? bin : NULL;
}

/* True if so many blocks were refused that the content of the cache is in the way. */
static bool is_crowded(struct gp_tcache *tc)
{
	bool is_over_limit;

	gp_ownlock_enter(&tc->cache.lock);
	is_over_limit = tc->n_refused >= GP_TCACHE_REFUSED_MAX;
	gp_ownlock_leave(&tc->cache.lock);
	return is_over_limit;
}

/* Flushes the cache. This is called from a free, so a fence for it covers all that this thread freed before. */
static void record_and_flush(struct gp_tcache *tc)
{
	bool is_any;

	gp_ownlock_enter(&tc->cache.lock);
	is_any = gp_tcache_bytes(tc) || tc->n_large;
	gp_ownlock_leave(&tc->cache.lock);
	if (!is_any)
		return;
	(void)record(tc, true);
	gp_tcache_flush(tc);
}

/*
 * True if blocks may wait for their fence: the GPU keeps up, and the pool can grow meanwhile. Otherwise requests need
 * the freed blocks, and a kernel may be launched before a fence tells that they are usable.
 */
static inline bool can_defer_fences(const struct gp_tcache *tc)
{
	return !gp_fence_lags(tc->fence) && gp_tcache_can_pool_grow(tc);
}

/*
 * The same for a free that is slow in any case. It polls during a lag in which no thread has used the fences for some
 * time: the pool may have enough usable memory, and without new work there is no new fence, so the lag would never end.
 */
static bool can_defer_after_poll(struct gp_tcache *tc)
{
	uint64_t n_calls;

	if (!gp_fence_lags(tc->fence))
		return can_defer_fences(tc);
	n_calls = gp_fence_calls(tc->fence);
	tc->n_lagged = n_calls == tc->lag_calls ? tc->n_lagged + 1 : 0;
	tc->lag_calls = n_calls;
	if (tc->n_lagged >= GP_TCACHE_LAG_POLL)
		(void)gp_fence_poll(tc->fence);
	return can_defer_fences(tc);
}

/*
 * Flushes the cache after a refusal if the GPU lags, memory is short or the cache is crowded: the pool can choose
 * better.
 */
static void flush_after_refusal(struct gp_tcache *tc, bool is_wanted)
{
	if (!is_wanted || is_crowded(tc))
		record_and_flush(tc);
}

/* Records the fence that is due, if one is. Returns 0 or the driver's error. */
static int record_due(struct gp_tcache *tc, enum due due)
{
	int r = 0;

	if (due == DUE_SOON)
		r = gp_fence_try_record(tc->fence, tc->newest_seq);
	else if (due == DUE_NOW)
		r = record(tc, true);
	return r > 0 ? r : 0;
}

/* Puts a small block into its bin; waits for the lock, and makes room if there is none. */
static enum due put_small(struct gp_tcache *tc, struct gp_recent *recent)
{
	bool is_wanted = can_defer_after_poll(tc);
	enum due due = is_wanted ? accept(tc, recent) : REFUSED;
	struct gp_bin *full = is_wanted && due == REFUSED ? find_full(tc, recent->size) : NULL;

	if (full && gp_tcache_spill(tc, full))
		due = accept(tc, recent);
	if (due == REFUSED)
		flush_after_refusal(tc, is_wanted);
	return due;
}

static enum due put_large(struct gp_tcache *tc, struct gp_recent *recent)
{
	if (!gp_tcache_put_large(tc, recent, gp_tcache_can_pool_grow(tc)))
		return REFUSED;
	recent->addr = 0;
	return tc->newest_seq < gp_tcache_usable_below(tc) ? NOT_DUE : DUE_NOW;
}

/* As gp_tcache_put, if more is needed than a free place in a bin. due: REFUSED, or the block is in its bin already. */
static __attribute__((noinline)) int put_slow(struct gp_tcache *tc, struct gp_recent *recent, enum due due)
{
	int saved_errno = errno, r;

	if (due == REFUSED)
		due = recent->size > tc->size_max ? put_large(tc, recent) : put_small(tc, recent);
	r = due == REFUSED ? -ENOENT : record_due(tc, due);
	errno = saved_errno;
	return r;
}

int gp_tcache_put(struct gp_tcache *tc, uint64_t addr)
{
	struct gp_recent *recent = gp_tcache_recent(tc, addr);
	enum due due = REFUSED;

	if (recent->addr != addr)
		recent++;
	if (gp_unlikely(recent->addr != addr || !addr))
		return -ENOENT;
	if (gp_likely(recent->size <= tc->size_max && can_defer_fences(tc) &&
		      gp_ownlock_enter_if_open(&tc->cache.lock))) {
		due = accept_locked(tc, recent);
		gp_ownlock_leave(&tc->cache.lock);
	}
	return gp_likely(due == NOT_DUE) ? 0 : put_slow(tc, recent, due);
}

/* True if a cache of this pool may hold the block, as far as that cannot change. */
static bool is_keepable(const struct gp_tcache *tc, const struct gp_block *b)
{
	return b->segment->pool == tc->pool && b->segment->kind == gp_pool_kind(tc->pool) && b->size <= tc->size_max;
}

/*
 * Keeps a claimed block. A block may be retired at any time, and caches are flushed after that, so this is checked with
 * the cache's lock held.
 */
static bool keep(struct gp_tcache *tc, struct gp_bin *bin, struct gp_block *block, enum due *ret_due)
{
	uint64_t bytes;
	bool is_kept;

	gp_ownlock_enter(&tc->cache.lock);
	bytes = gp_tcache_bytes(tc);
	is_kept = !is_full(bin) && bytes + block->size <= tc->bytes_max && gp_tcache_is_open_locked(tc) &&
		  !(block->flags & (GP_BLOCK_UNCACHED | GP_BLOCK_STREAM | GP_BLOCK_CAPTURED)) &&
		  !gp_block_is_retired(block);
	if (is_kept) {
		gp_block_set_state(block, GP_BLOCK_TCACHED);
		put_locked(tc, bin, block, bytes);
		*ret_due = record_due_locked(tc, bin);
	}
	gp_ownlock_leave(&tc->cache.lock);
	return is_kept;
}

/*
 * Keeps a claimed block (FREEING) as if the thread had been given it, if it may be handed out from here. Many blocks
 * that other threads allocated then share a fence, as the thread's own do. *ret_r: as the result of gp_tcache_put.
 */
static bool keep_claimed(void *arg, struct gp_block *block, int *ret_r)
{
	struct gp_tcache *tc = arg;
	struct gp_bin *full = NULL;
	enum due due = NOT_DUE;
	bool is_wanted, is_kept;

	if (!is_keepable(tc, block))
		return false;
	is_wanted = can_defer_after_poll(tc);
	is_kept = is_wanted && keep(tc, bin_of(tc, block->size), block, &due);
	if (is_wanted && !is_kept)
		full = find_full(tc, block->size);
	if (full && gp_tcache_spill(tc, full))
		is_kept = keep(tc, full, block, &due);
	if (is_kept)
		*ret_r = record_due(tc, due);
	else
		flush_after_refusal(tc, is_wanted);
	return is_kept;
}

/*
 * Nearly every block freed here belongs to the cache's pool. The cache has a reference to that, so no other is needed
 * then.
 */
int gp_tcache_free_by(struct gp_addrmap *map, uint64_t addr, struct gp_tcache *tc)
{
	struct gp_block *block = tc ? gp_addrmap_try_claim(map, addr, tc->pool) : NULL;

	if (gp_likely(block != NULL))
		return gp_pool_take_back(tc->pool, block, keep_claimed, tc);
	return gp_pool_free_or_keep(map, addr, tc ? keep_claimed : NULL, tc);
}
