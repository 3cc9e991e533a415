/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Each octave has four bins. The 64 bins begin at 512 bytes, and the last one takes everything from 28 MiB on. A bitmap
 * of one word finds the bins worth a look, so that neither polling nor a search for a fit walks over irrelevant blocks.
 */

#include "pending.h"

#include <limits.h>

#include "tuning.h"

static unsigned bin_of(uint64_t bytes)
{
	unsigned k = gp_log2(bytes), nth = k >= 2 ? (unsigned)(bytes >> (k - 2)) & 3 : 0;
	unsigned bin = k <= 9 ? 0 : (k - 9) * 4 + nth;

	return bin < GP_PENDING_BINS ? bin : GP_PENDING_BINS - 1;
}

void gp_pending_init(struct gp_pending *p)
{
	*p = (struct gp_pending){0};
	for (int queue = 0; queue < GP_PENDING_QUEUES; queue++)
		for (int i = 0; i < GP_PENDING_BINS; i++)
			gp_list_init(&p->bins[queue][i]);
}

static unsigned queue_of_stream(uint64_t stream)
{
	return 2 + (unsigned)((stream * UINT64_C(0x9e3779b97f4a7c15)) >> 60);
}

_Static_assert(GP_PENDING_STREAMS == 1 << (64 - 60), "the hash fits");

static unsigned queue_of(const struct gp_block *block)
{
	if (block->flags & GP_BLOCK_STREAM)
		return queue_of_stream(gp_block_stream(block));
	return !!(block->flags & GP_BLOCK_UNFENCED);
}

static void count(struct gp_pending *p, const struct gp_block *block, uint64_t n)
{
	p->bytes += n * block->size;
	p->count += n;
	if (!(block->flags & GP_BLOCK_UNFENCED))
		return;
	p->n_unfenced += n;
	p->n_stream += block->flags & GP_BLOCK_STREAM ? n : 0;
}

static uint64_t seq_of(const struct gp_list *link)
{
	return gp_container_of(link, struct gp_block, link)->seq;
}

/* Walks from the newest block back to the link behind which the block belongs. False: that is further away. */
static bool walk_back(struct gp_list *head, const struct gp_block *block, unsigned max, struct gp_list **ret_before)
{
	struct gp_list *before = head->prev;

	for (unsigned n = 0; n < max && before != head && seq_of(before) > block->seq; n++)
		before = before->prev;
	*ret_before = before;
	return before == head || seq_of(before) <= block->seq;
}

/* The same from the oldest block on. */
static bool walk_on(struct gp_list *head, const struct gp_block *block, unsigned max, struct gp_list **ret_before)
{
	struct gp_list *next = head->next;

	for (unsigned n = 0; n < max && seq_of(next) < block->seq; n++)
		next = next->next;
	if (seq_of(next) < block->seq)
		return false;
	*ret_before = next->prev;
	return true;
}

/*
 * Returns the link behind which the block belongs. Threads that free at the same time may queue out of order. Blocks
 * that no GPU work uses (fence sequence 0) go first. The rest of a block freed in stream order keeps the sequence of
 * its free: its place is near the oldest blocks, or may be far from either end.
 */
static struct gp_list *find_place(struct gp_list *head, const struct gp_block *block)
{
	bool is_bounded = block->flags & GP_BLOCK_STREAM;
	struct gp_list *before;

	if (!block->seq)
		return head;
	if (!walk_back(head, block, is_bounded ? GP_PENDING_WALK_MAX : UINT_MAX, &before))
		(void)walk_on(head, block, GP_PENDING_WALK_MAX, &before);
	return before;
}

void gp_pending_add(struct gp_pending *p, struct gp_block *block)
{
	unsigned queue = queue_of(block), bin = bin_of(block->size);
	struct gp_list *head = &p->bins[queue][bin], *before = find_place(head, block);

	/*
	 * A block freed in stream order that does not get to its place is usable with the block before it, whose fence
	 * covers it, too. Its stream may use it at once in any case.
	 */
	if (before != head)
		block->seq = gp_max(block->seq, seq_of(before));
	gp_list_prepend(before, &block->link);
	p->bitmap[queue] |= UINT64_C(1) << bin;
	if (block->flags & GP_BLOCK_STREAM)
		p->stream_seq_min = gp_min(p->n_stream ? p->stream_seq_min : UINT64_MAX, block->seq);
	count(p, block, 1);
	p->newest_seq = gp_max(p->newest_seq, block->seq);
}

void gp_pending_remove(struct gp_pending *p, struct gp_block *block)
{
	unsigned queue = queue_of(block), bin = bin_of(block->size);

	gp_list_remove(&block->link);
	if (gp_list_is_empty(&p->bins[queue][bin]))
		p->bitmap[queue] &= ~(UINT64_C(1) << bin);
	count(p, block, UINT64_MAX);
}

static struct gp_block *head_of(struct gp_pending *p, int queue, unsigned bin)
{
	return gp_container_of(p->bins[queue][bin].next, struct gp_block, link);
}

/* Takes out a block with a fence sequence below that, or returns NULL. */
static struct gp_block *take_below(struct gp_pending *p, int queue, uint64_t below)
{
	for (uint64_t bits = p->bitmap[queue]; bits; bits &= bits - 1) {
		struct gp_block *b = head_of(p, queue, (unsigned)__builtin_ctzll(bits));

		if (b->seq < below) {
			gp_pending_remove(p, b);
			return b;
		}
	}
	return NULL;
}

static struct gp_block *take_completed(struct gp_pending *p, uint64_t completed)
{
	bool looks_at_streams = p->n_stream && p->stream_seq_min < completed;
	int n = looks_at_streams ? GP_PENDING_QUEUES : 2;
	struct gp_block *b = NULL;

	for (int queue = 1; queue < n && !b; queue++)
		b = take_below(p, queue, completed);
	if (!b && looks_at_streams)
		p->stream_seq_min = completed;
	return b;
}

struct gp_block *gp_pending_take_usable(struct gp_pending *p, uint64_t gpu_waited, uint64_t completed)
{
	struct gp_block *b = take_below(p, 0, gpu_waited);

	return b || !p->n_unfenced ? b : take_completed(p, completed);
}

struct gp_block *gp_pending_find_of_stream(
	struct gp_pending *p, uint64_t stream, uint64_t min_bytes, uint64_t max_bytes)
{
	unsigned queue = queue_of_stream(stream), from = bin_of(min_bytes), to = bin_of(max_bytes);
	uint64_t range = (UINT64_MAX << from) & (UINT64_MAX >> (63 - to));

	for (uint64_t bits = p->bitmap[queue] & range; bits; bits &= bits - 1) {
		struct gp_list *head = &p->bins[queue][__builtin_ctzll(bits)];
		int looked = 0;

		for (struct gp_list *link = head->prev; link != head && looked++ < GP_PENDING_LOOK_PER_BIN;
			link = link->prev) {
			struct gp_block *b = gp_container_of(link, struct gp_block, link);

			if (gp_block_stream(b) == stream && b->size >= min_bytes && b->size <= max_bytes &&
				!gp_block_is_retired(b) && !b->segment->is_uncached)
				return b;
		}
	}
	return NULL;
}

bool gp_pending_is_of_run(const struct gp_block *block, uint64_t stream)
{
	if (!block || block->flags & GP_BLOCK_GUARD || gp_block_is_exported(block))
		return false;
	if (gp_block_state(block) == GP_BLOCK_PENDING)
		return block->flags & GP_BLOCK_STREAM && gp_block_stream(block) == stream;
	return gp_block_state(block) == GP_BLOCK_CACHED;
}

/* Extends a run of one block until it has that many bytes. left: blocks that may still be looked at. */
static bool extend(struct gp_run *run, uint64_t stream, uint64_t bytes, int *left)
{
	uint64_t sum = run->first->size;

	for (; sum < bytes && --*left >= 0 && gp_pending_is_of_run(run->last->next, stream); sum += run->last->size)
		run->last = run->last->next;
	for (; sum < bytes && --*left >= 0 && gp_pending_is_of_run(run->first->prev, stream); sum += run->first->size)
		run->first = run->first->prev;
	return sum >= bytes;
}

bool gp_pending_find_run_of_stream(struct gp_pending *p, uint64_t stream, uint64_t bytes, struct gp_run *ret_run)
{
	unsigned queue = queue_of_stream(stream);
	int left = GP_RUN_LOOK;

	for (uint64_t bits = p->bitmap[queue] & (UINT64_MAX << bin_of(GP_SMALL_MAX)); bits; bits &= bits - 1) {
		struct gp_list *head = &p->bins[queue][__builtin_ctzll(bits)];

		for (struct gp_list *link = head->prev; link != head && --left >= 0; link = link->prev) {
			struct gp_block *b = gp_container_of(link, struct gp_block, link);

			if (b->size <= GP_SMALL_MAX || !gp_pending_is_of_run(b, stream) || gp_block_is_retired(b) ||
				b->segment->is_uncached)
				continue;
			*ret_run = (struct gp_run){b, b};
			if (extend(ret_run, stream, bytes, &left))
				return true;
		}
	}
	return false;
}

struct gp_block *gp_pending_find(struct gp_pending *p, uint64_t min_bytes, uint64_t max_bytes)
{
	unsigned from = bin_of(min_bytes), to = bin_of(max_bytes);
	uint64_t range = (UINT64_MAX << from) & (UINT64_MAX >> (63 - to));
	struct gp_block *best = NULL;

	for (uint64_t bits = p->bitmap[0] & range; bits; bits &= bits - 1) {
		struct gp_list *bin = &p->bins[0][__builtin_ctzll(bits)], *link;
		int looked = 0;

		gp_list_each(link, bin) {
			struct gp_block *b = gp_container_of(link, struct gp_block, link);

			if ((best && b->seq >= best->seq) || looked++ == GP_PENDING_LOOK_PER_BIN)
				break;
			if (b->size >= min_bytes && b->size <= max_bytes && !gp_block_is_retired(b))
				best = b;
		}
	}
	return best;
}

struct gp_segment *gp_pending_find_unused(struct gp_pending *p)
{
	for (int queue = GP_PENDING_QUEUES - 1; queue >= 0; queue--) {
		for (uint64_t bits = p->bitmap[queue]; bits;) {
			unsigned bin = 63 - (unsigned)__builtin_clzll(bits);
			struct gp_list *link;
			int looked = 0;

			bits &= ~(UINT64_C(1) << bin);
			gp_list_each(link, &p->bins[queue][bin]) {
				struct gp_segment *s = gp_container_of(link, struct gp_block, link)->segment;

				if (gp_segment_is_unused(s))
					return s;
				if (++looked == GP_PENDING_LOOK_PER_BIN)
					break;
			}
		}
	}
	return NULL;
}
