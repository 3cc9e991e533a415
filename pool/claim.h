/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* The hand-out of a block to the program, and the claim that takes it back. */

#include "block.h"

/*
 * A claim token: a block as it was handed out. From then on any thread may free the block, even by an address that it
 * remembers from an earlier hand-out, and the descriptor may come to stand for another block.
 */
struct gp_claim_token {
	struct gp_block *block; /* NULL: no block */
	uint64_t addr, size, word;
};

/* Hands the block out to the program. Until now the calling thread must have owned it. */
static inline struct gp_claim_token gp_block_hand_out(
	struct gp_block *b, uint64_t requested, uint32_t module, uint64_t serial)
{
	uint64_t word = atomic_load_explicit(&b->word, memory_order_relaxed);
	struct gp_claim_token token = {
		.block = b,
		.addr = b->addr,
		.size = b->size,
		.word = ((word & ~UINT64_C(0xff)) + 0x100) | GP_BLOCK_USED,
	};

	atomic_store_explicit(&b->requested, requested, memory_order_relaxed);
	atomic_store_explicit(&b->serial, serial, memory_order_relaxed);
	atomic_store_explicit(&b->module, module, memory_order_relaxed);
	atomic_store_explicit(&b->word, token.word, memory_order_release);
	return token;
}

/* True if the program still holds the block as it was handed out. */
static inline bool gp_block_is_held_as(const struct gp_claim_token *token)
{
	return atomic_load_explicit(&token->block->word, memory_order_relaxed) == token->word;
}

/* Claims the block, unless it was freed or handed out again since `word` was read. If two threads try, one succeeds. */
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
