/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

#include "kind.h"
#include "pool_impl.h"

/*
 * What an allocation goes through when memory has run out. attempt() asks the driver; it may set handed,
 * which the search sets too if the pool can serve the request after all. Without a request only attempts count.
 */
struct gp_rounds {
	struct gp_pool *pool;
	struct gp_request *request; /* NULL: not a pool's allocation */
	uint64_t bytes;		    /* what is missing, at the most */
	int (*attempt)(struct gp_rounds *rounds);
	int (*rescue)(void *arg); /* gp_pool_rescue's */
	void *rescue_arg;
	uint64_t n_arrivals; /* of others, before the last attempt */
	int result;	     /* of the last attempt */
	struct gp_round_stats spent[GP_N_ROUNDS]; /* for this one */
	struct gp_handed handed;
};

/* 0, or what the last attempt said. */
int gp_rounds_run(struct gp_rounds *rounds);
