/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * The parts of a thread cache (tcache.c), and what the pool does with the caches of its threads (tcache_pool.c).
 *
 * Only the owner adds and takes blocks. Other threads flush a cache (memory has run out, the pool ends) or count it;
 * they hold the pool's lock and close all caches of the pool. The owner holds its lock for a few instructions, takes no
 * other lock meanwhile and makes no driver call.
 */

#include "caches.h"
#include "pool_impl.h"
#include "tcache.h"
#include "tuning.h"

enum {
	GP_BIN_EXACT_BITS = 3,
	GP_BIN_EXACT = 1 << GP_BIN_EXACT_BITS, /* bins of one size, twice; then this many per power of two */
	GP_TCACHE_BINS = GP_BIN_EXACT * 9,     /* bins for sizes up to GP_SMALL_MAX */
	GP_TCACHE_SETS = 1024,
	GP_TCACHE_WAYS = 2,
};

/*
 * A bin: blocks that served requests of about the same size, in the order of their frees. Two bins share a cache line.
 */
struct gp_bin {
	uint8_t first, count;
	uint8_t depth;            /* capacity */
	uint8_t due;              /* number of blocks at which the oldest must get a fence; at most depth */
	uint32_t n_fences;        /* fences recorded because a single block was wanted */
	uint64_t grown_bytes;     /* bytes by which the pool grew for this bin */
	struct gp_block **blocks; /* a ring of GP_TCACHE_DEPTH */
} __attribute__((aligned(32)));

struct gp_recent {
	uint64_t addr, size; /* size of the request, which the block may exceed */
	struct gp_block *block;
	uint64_t word; /* claim token: the block's word at the hand-out */
};

struct gp_large {
	struct gp_block *block;
	uint64_t size; /* size of the request that it served */
};

struct gp_tcache {
	struct gp_cache cache; /* first, since every call takes its lock */
	struct gp_pool *pool;
	struct gp_fence *fence; /* the pool's */
	uint64_t bytes_max;     /* limit of bytes held */
	uint64_t size_max;      /* largest block in a bin; a multiple of GP_ALIGN */
	uint64_t newest_seq;    /* newest fence sequence among freed blocks */
	uint64_t published;     /* the last fence seen, recorded by any thread */
	unsigned n_uncovered;   /* blocks freed since then */
	unsigned n_refused;     /* blocks refused for lack of room since the last flush */
	uint64_t requested;     /* bytes requested in hand-outs from here, minus what the pool accounts for; wraps */
	uint64_t next_serial, end_serial, n_serials; /* serial numbers: last used, last obtained, and how many in all */
	unsigned n_large;
	struct gp_large large[GP_TCACHE_LARGE]; /* in the order of their frees: tcache_large.c */
	struct gp_bin bins[GP_TCACHE_BINS];
	struct gp_block *blocks[GP_TCACHE_BINS][GP_TCACHE_DEPTH];
	/* One cache line per set; the newer entry first. */
	struct gp_recent recent[GP_TCACHE_SETS][GP_TCACHE_WAYS] __attribute__((aligned(64)));
	void *memory; /* the allocation that holds all of this */
};

_Static_assert(GP_SMALL_MAX / GP_ALIGN == 1 << 11 && GP_TCACHE_BINS == GP_BIN_EXACT * (11 - GP_BIN_EXACT_BITS + 1),
	"there is a bin for each size");

/* Returns the index of the bin for a size. Sizes of one bin differ by less than an eighth. */
static inline unsigned gp_bin_index(uint64_t size)
{
	unsigned units = (unsigned)(size / GP_ALIGN) - 1;
	unsigned power = 31 - (unsigned)__builtin_clz(units | GP_BIN_EXACT) - GP_BIN_EXACT_BITS;

	gp_assert(size >= GP_ALIGN && size <= GP_SMALL_MAX);
	return GP_BIN_EXACT * power + (units >> power);
}

/* Returns the largest size that belongs in a bin. */
static inline uint64_t gp_bin_size_max(unsigned index)
{
	unsigned power = index < 2 * GP_BIN_EXACT ? 0 : index / GP_BIN_EXACT - 1;
	uint64_t units = ((uint64_t)(index - GP_BIN_EXACT * power + 1) << power) - 1;

	return (units + 1) * GP_ALIGN;
}
