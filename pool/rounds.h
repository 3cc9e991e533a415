/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

#include "kind.h"
#include "pool_impl.h"

/*
 * The state of the retry rounds for one allocation. attempt() asks the driver and may set `token`. A search of the pool
 * sets it, too, if the pool can serve the request after all. Without a request nothing is searched for.
 */
struct gp_rounds {
	struct gp_pool *pool;
	struct gp_request *request; /* NULL: the allocation is not pooled */
	uint64_t bytes;             /* missing bytes, at most */
	int (*attempt)(struct gp_rounds *rounds);
	int (*rescue)(void *arg); /* passed to gp_pool_rescue */
	void *rescue_arg;
	struct gp_supply supply;                  /* taken before the last attempt */
	int result;                               /* of the last attempt */
	bool has_turn;                            /* no other thread runs the rounds of the pool */
	bool is_left_out;                         /* the round has done nothing, so it is not counted */
	struct gp_round_stats spent[GP_N_ROUNDS]; /* what this allocation spent in each round */
	struct gp_failure *ret_failure;           /* set if the rounds fail; or NULL */
	struct gp_claim_token token;
};

/* Returns the supply before an attempt of the request, or without a request before any attempt. */
struct gp_supply gp_rounds_supply(struct gp_pool *pool, const struct gp_request *request);

/* Runs the rounds. 0, or the result of the last attempt. */
int gp_rounds_run(struct gp_rounds *rounds);

/*
 * Waits, for a bounded time, for fences that no free recorded. Unfenced blocks have no other fence. Where memory can be
 * given back only while the context is idle, only a new fence shows that it is idle.
 */
void gp_rounds_await_unfenced(struct gp_pool *pool);
