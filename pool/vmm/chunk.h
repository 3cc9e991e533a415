/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* A chunk: memory of the kind vmm, mapped, moved and given back as a whole (chunk.c). */

#include "pool/list.h"
#include "pool/pool.h"

struct gp_arena;
struct gp_saved;

/* The handle of a chunk that has no memory, since it is asleep. */
#define GP_CHUNK_NO_HANDLE 0

struct gp_chunk {
	struct gp_list link; /* vm->chunks */
	uint64_t addr, size, handle;
	bool is_mapped;  /* as far as its thread knows */
	bool is_stuck;   /* the driver refused to unmap it: left alone until all memory is to go back */
	bool is_retired; /* no block is cut from it again, and it does not move, since part of it was exported, say */
	bool is_spilled; /* its memory is the host's (spill.h): it is given back, but not moved to other addresses */
	bool is_asleep;  /* its memory is in the driver and its content in host memory: left alone until it is awake */
	bool is_kept;    /* stays after the end of its context, and charged, while blocks in it survive (pool.h) */
	bool is_tried;   /* the driver has refused to unmap it after that end, too */
	unsigned n_survivors;   /* those blocks */
	unsigned n_pins;        /* threads that use the handle: it is neither moved nor given back meanwhile */
	struct gp_saved *saved; /* the content, while the chunk is asleep or about to be */
};

/* Creates a chunk. It belongs to the thread until it is mapped, and counts as returning. */
int gp_chunk_create(struct gp_pool *pool, uint64_t bytes, struct gp_chunk **ret_chunk);

/*
 * Maps a chunk at an address. 0, GP_E_DEAD, or the driver's error. After an error the chunk has gone back, unless the
 * driver does not unmap it again (*ret_is_stuck): then the part of the placement that it covers counts as exported.
 */
int gp_chunk_map(
	struct gp_pool *pool, struct gp_arena *arena, struct gp_chunk *chunk, uint64_t addr, bool *ret_is_stuck);

/*
 * Unmaps a chunk that this thread has taken: its addresses become an unmapped gap, and the chunk belongs to the thread.
 * 0, GP_E_DEAD, or the driver's error: then the chunk is cached again, and stuck.
 */
int gp_chunk_unmap(struct gp_pool *pool, struct gp_chunk *chunk);

/* Gives back an unmapped chunk that belongs to the thread. */
void gp_chunk_give_back(struct gp_pool *pool, struct gp_chunk *chunk);

/*
 * Unmaps and gives back a chunk that this thread has just mapped. 0, or the driver's error: then it stays there, and is
 * stuck.
 */
int gp_chunk_remove(struct gp_pool *pool, struct gp_chunk *chunk);

/* As give_back of struct gp_kind_ops. */
uint64_t gp_arena_give_back(struct gp_pool *pool, uint64_t want);
