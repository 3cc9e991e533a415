/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* The beginning and the end of the arenas of a pool. */

#include "arena.h"

int gp_arena_open(struct gp_pool *pool);
void gp_arena_close(struct gp_pool *pool);

/*
 * Bracket the work of a thread that maps or unmaps, from before it takes blocks until it has returned them.
 * gp_arena_enter_locked returns false if the pool is dead, or falls asleep or wakes (sleep.h).
 * gp_arena_enter_waiting_locked waits until that is over, without the lock, and returns false only if the pool is dead.
 */
bool gp_arena_enter_locked(struct gp_pool *pool);
bool gp_arena_enter_waiting_locked(struct gp_pool *pool);
void gp_arena_leave(struct gp_pool *pool);

/* As gp_pool_unmap. */
void gp_arena_unmap(struct gp_pool *pool);

/*
 * The survival of blocks (gp_pool_drop_except). gp_arena_can_keep_locked: true if the memory of a block is there.
 * gp_arena_keep_locked lets it survive, and returns the bytes that stay charged for it in addition.
 */
bool gp_arena_can_keep_locked(const struct gp_pool *pool, uint64_t addr, uint64_t bytes);
uint64_t gp_arena_keep_locked(struct gp_pool *pool, uint64_t addr, uint64_t bytes);
void gp_arena_end_survivor(struct gp_pool *pool, uint64_t addr, uint64_t bytes);
