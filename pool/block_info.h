/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct gp_block;

/* A block, as the program knows it. */
struct gp_block_info {
	uint64_t addr, size;                 /* bytes that the program asked for; of a free block all its bytes */
	uint64_t rounded;                    /* bytes that the block takes */
	uint64_t serial;                     /* unique per hand-out in the process */
	uint64_t segment_base, segment_size; /* the driver allocation; kind vmm: the chunk in which the block begins */
	uint32_t module;                     /* the calling module, of a used block */
	bool is_used, is_whole, is_retired;  /* retired: not handed out again */
	bool is_cached, is_mapped; /* free and ready to be handed out; of the kind vmm, not a driver allocation */
	bool is_guard;             /* cached, but never handed out: the first bytes of a shared segment */
	bool is_of_stream;         /* used, and allocated in stream order */
	unsigned account;          /* the account that it counts for; or GP_ACCOUNT_NONE */
};

/* Describes a block. The caller holds the lock of its pool. */
struct gp_block_info gp_block_describe(const struct gp_block *block);
