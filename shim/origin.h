/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Where blocks come from: while stacks are on, each allocation notes its call site and the time, and each free of such
 * a block its own. Kept by address beside the pools, which know nothing of it, so it does not matter who serves a
 * block. Switched off again, no more stacks are taken, and blocks keep what they have.
 */

#include <stdatomic.h>

#include "../pool/base.h"
#include "config_stacks.h"

enum {
	GP_ORIGIN_WATCH = 1,  /* there are blocks with an origin */
	GP_ORIGIN_STACKS = 2, /* new ones get one */
};

extern _Atomic unsigned gp_origin_mode;

/* 0, -ENOENT (there is no unwinder) or -ENOMEM. No lock may be held. */
int gp_origin_switch(const struct gp_config_stacks *stacks);

/* As it was switched last; depth 0: off. Since when, on the driver's clock; 0: never. */
void gp_origin_setting(struct gp_config_stacks *ret, uint64_t *ret_since_ns);

/* Allocations that were not noted, for want of room. */
uint64_t gp_origins_dropped(void);

/* The key of memory that is no block: an address of any kind of thing with such a number. */
static inline uint64_t gp_origin_key(unsigned kind, uint64_t id)
{
	return id ^ ((uint64_t)kind + 1) << 56;
}

__attribute__((cold)) void gp_origin_given_slow(uint64_t key, uint64_t bytes);
__attribute__((cold)) void gp_origin_freed_slow(uint64_t key);
__attribute__((cold)) void gp_origin_kept_slow(uint64_t key);

/* The program has been given it. */
static inline void gp_origin_given(uint64_t key, uint64_t bytes)
{
	if (gp_unlikely(atomic_load_explicit(&gp_origin_mode, memory_order_relaxed)))
		gp_origin_given_slow(key, bytes);
}

/* The program frees it. Said before anybody else can have it. */
static inline void gp_origin_freed(uint64_t key)
{
	if (gp_unlikely(atomic_load_explicit(&gp_origin_mode, memory_order_relaxed)))
		gp_origin_freed_slow(key);
}

/* That free was refused, and the program has it still. */
static inline void gp_origin_kept(uint64_t key)
{
	if (gp_unlikely(atomic_load_explicit(&gp_origin_mode, memory_order_relaxed)))
		gp_origin_kept_slow(key);
}

struct gp_origin {
	uint64_t bytes;	  /* asked for */
	uint64_t time_ns; /* of the allocation; once it is freed, of that */
	uint32_t given, freed; /* sites; 0: unknown */
	bool is_freed;
};

/* The site that the thread was called from; 0 while stacks are off. */
uint32_t gp_origin_of_caller(void);

/* What is known of it; false if nothing is. What was freed is known for a while. */
bool gp_origin_find(uint64_t key, struct gp_origin *ret);
