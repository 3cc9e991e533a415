/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Bins are octaves in four steps, folded so that 64 of them reach from 512 bytes to 16 MiB and a last one takes the
 * rest: a bit map of one word finds the bins worth a look, so that neither settling nor looking for a fit
 * walks over blocks that do not matter.
 */

#include "pending.h"

enum { LOOK_PER_BIN = 8 };

static unsigned bin_of(uint64_t bytes)
{
	unsigned k = gp_log2(bytes), nth = k >= 2 ? (unsigned)(bytes >> (k - 2)) & 3 : 0;
	unsigned bin = k <= 9 ? 0 : (k - 9) * 4 + nth;

	return bin < GP_PENDING_BINS ? bin : GP_PENDING_BINS - 1;
}

void gp_pending_init(struct gp_pending *p)
{
	*p = (struct gp_pending){0};
	for (int late = 0; late < 2; late++)
		for (int i = 0; i < GP_PENDING_BINS; i++)
			gp_list_init(&p->bins[late][i]);
}

void gp_pending_add(struct gp_pending *p, struct gp_block *block)
{
	unsigned late = !!(block->flags & GP_BLOCK_LATE), bin = bin_of(block->size);
	struct gp_list *head = &p->bins[late][bin], *before = head->prev;

	/* Threads that free at the same time may queue out of order; what the GPU never touches goes first. */
	if (!block->stamp)
		before = head;
	while (before != head && gp_container_of(before, struct gp_block, link)->stamp > block->stamp)
		before = before->prev;
	gp_list_prepend(before, &block->link);
	p->bitmap[late] |= UINT64_C(1) << bin;
	p->bytes += block->size;
	p->count++;
	p->newest_stamp = gp_max(p->newest_stamp, block->stamp);
}

void gp_pending_remove(struct gp_pending *p, struct gp_block *block)
{
	unsigned late = !!(block->flags & GP_BLOCK_LATE), bin = bin_of(block->size);

	gp_list_remove(&block->link);
	if (gp_list_is_empty(&p->bins[late][bin]))
		p->bitmap[late] &= ~(UINT64_C(1) << bin);
	p->bytes -= block->size;
	p->count--;
}

static struct gp_block *head_of(struct gp_pending *p, int late, unsigned bin)
{
	return gp_container_of(p->bins[late][bin].next, struct gp_block, link);
}

struct gp_block *gp_pending_take_usable(struct gp_pending *p, uint64_t ordered, uint64_t completed)
{
	for (int late = 0; late < 2; late++) {
		uint64_t below = late ? completed : ordered;

		for (uint64_t bits = p->bitmap[late]; bits; bits &= bits - 1) {
			struct gp_block *b = head_of(p, late, (unsigned)__builtin_ctzll(bits));

			if (b->stamp < below) {
				gp_pending_remove(p, b);
				return b;
			}
		}
	}
	return NULL;
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

			if ((best && b->stamp >= best->stamp) || looked++ == LOOK_PER_BIN)
				break;
			if (b->size >= min_bytes && b->size <= max_bytes && !gp_block_is_retired(b))
				best = b;
		}
	}
	return best;
}

struct gp_segment *gp_pending_find_unused(struct gp_pending *p)
{
	for (int late = 1; late >= 0; late--) {
		for (uint64_t bits = p->bitmap[late]; bits;) {
			unsigned bin = 63 - (unsigned)__builtin_clzll(bits);
			struct gp_list *link;
			int looked = 0;

			bits &= ~(UINT64_C(1) << bin);
			gp_list_each(link, &p->bins[late][bin]) {
				struct gp_segment *s = gp_container_of(link, struct gp_block, link)->segment;

				if (gp_segment_is_unused(s))
					return s;
				if (++looked == LOOK_PER_BIN)
					break;
			}
		}
	}
	return NULL;
}
