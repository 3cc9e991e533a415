/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Allocation records. While stacks are on, each allocation notes its call site and the time, and each free of such a
 * block notes the same. The records are kept by address, outside of the pools, so there are records for pooled memory
 * and for memory that is only counted. When stacks are switched off, no new records are made, and blocks keep theirs.
 */

#include <stdatomic.h>

#include "pool/base.h"
#include "common/config_stacks.h"

enum {
	GP_ALLOC_INFO_WATCH = 1,  /* blocks with an allocation record may exist */
	GP_ALLOC_INFO_STACKS = 2, /* new blocks get an allocation record */
};

extern _Atomic unsigned gp_alloc_info_mode;

/*
 * Switches stacks on, changes their settings, or switches them off (depth 0). Returns 0, -ENOENT (no unwinder) or
 * -ENOMEM. The caller may hold no lock.
 */
int gp_alloc_info_switch(const struct gp_config_stacks *stacks);

/*
 * Returns the current settings (depth 0: off), and the time at which stacks were last switched on, by gp_clock_now_ns
 * (0: never).
 */
void gp_alloc_info_settings(struct gp_config_stacks *ret, uint64_t *ret_since_ns);

/* Returns the number of allocations that got no record because the table was full. */
uint64_t gp_alloc_info_dropped(void);

/*
 * Returns the key of an allocation that is not a pool's block, from its kind and its id. It differs from all addresses
 * and from the keys of other kinds.
 */
static inline uint64_t gp_alloc_info_key(unsigned kind, uint64_t id)
{
	return id ^ ((uint64_t)kind + 1) << 56;
}

/*
 * Takes the stack of an allocation before it is noted, so that a recording has the same stack. Returns the call site;
 * 0: none. gp_alloc_info_note_alloc() of this key uses it if this thread calls it next. key: 0 if the allocation has
 * failed.
 */
uint32_t gp_alloc_info_take(uint64_t key, uint64_t bytes);

__attribute__((cold)) void gp_alloc_info_note_alloc_slow(uint64_t key, uint64_t bytes);
__attribute__((cold)) void gp_alloc_info_note_free_slow(uint64_t key);
__attribute__((cold)) void gp_alloc_info_undo_free_slow(uint64_t key);

/* Notes that the program has received this memory. */
static inline void gp_alloc_info_note_alloc(uint64_t key, uint64_t bytes)
{
	if (gp_unlikely(atomic_load_explicit(&gp_alloc_info_mode, memory_order_relaxed)))
		gp_alloc_info_note_alloc_slow(key, bytes);
}

/* Notes that the program frees this memory. Must precede the free: afterwards another thread may receive it. */
static inline void gp_alloc_info_note_free(uint64_t key)
{
	if (gp_unlikely(atomic_load_explicit(&gp_alloc_info_mode, memory_order_relaxed)))
		gp_alloc_info_note_free_slow(key);
}

/* Notes that the free was refused, so that the program still holds the memory. */
static inline void gp_alloc_info_undo_free(uint64_t key)
{
	if (gp_unlikely(atomic_load_explicit(&gp_alloc_info_mode, memory_order_relaxed)))
		gp_alloc_info_undo_free_slow(key);
}

struct gp_alloc_info {
	uint64_t bytes;        /* requested */
	uint64_t time_ns;      /* of the allocation or, if is_freed, of the free */
	uint32_t given, freed; /* call sites of the allocation and of the free; 0: unknown */
	bool is_freed;
};

/* Takes the thread's stack and returns its call site; 0 while stacks are off, or if there is no room for the site. */
uint32_t gp_alloc_info_current_site(void);

/* Copies the record of this memory; false if there is none. Records of freed memory are kept for a while. */
bool gp_alloc_info_find(uint64_t key, struct gp_alloc_info *ret);
