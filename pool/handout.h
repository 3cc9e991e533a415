/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* How a block becomes the program's, and how it is taken from it. */

#include "block.h"

/*
 * A block as it was handed out. From then on any thread may free it, if only by an address that it remembers from
 * before, and its descriptor may come to stand for another.
 */
struct gp_handed {
	struct gp_block *block; /* NULL: there was none */
	uint64_t addr, size, word;
};

/* Makes it the program's, whoever does it having it for himself until now. */
static inline struct gp_handed gp_block_hand_out(
	struct gp_block *b, uint64_t requested, uint32_t caller, uint64_t serial)
{
	uint64_t word = atomic_load_explicit(&b->word, memory_order_relaxed);
	struct gp_handed handed = {
		.block = b,
		.addr = b->addr,
		.size = b->size,
		.word = ((word & ~UINT64_C(0xff)) + 0x100) | GP_BLOCK_USED,
	};

	atomic_store_explicit(&b->requested, requested, memory_order_relaxed);
	atomic_store_explicit(&b->serial, serial, memory_order_relaxed);
	atomic_store_explicit(&b->caller, caller, memory_order_relaxed);
	atomic_store_explicit(&b->word, handed.word, memory_order_release);
	return handed;
}

/* Whether nobody has freed it since. */
static inline bool gp_block_is_as_handed(const struct gp_handed *handed)
{
	return atomic_load_explicit(&handed->block->word, memory_order_relaxed) == handed->word;
}

/* Takes it from the program, if it was not handed out again since its word was that. Of two who try, one gets it. */
static inline bool gp_block_claim_as(struct gp_block *b, uint64_t word, enum gp_block_state state)
{
	return (word & 0xff) == GP_BLOCK_USED &&
	       atomic_compare_exchange_strong_explicit(&b->word, &word, (word & ~UINT64_C(0xff)) | (uint64_t)state,
		       memory_order_acq_rel, memory_order_relaxed);
}

static inline bool gp_block_claim(struct gp_block *b, uint64_t word)
{
	return gp_block_claim_as(b, word, GP_BLOCK_FREEING);
}
