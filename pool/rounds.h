/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

#include "kind.h"
#include "pool_impl.h"

/*
 * What had happened before an attempt; if that is not all there is now, another may do better. What a kind's own way of
 * growing can use besides what the driver has is looked at, too: blocks that were freed since, and work that is done.
 */
struct gp_news {
	uint64_t n_arrivals; /* of memory at the driver, but for what the request's own attempts gave back */
	uint64_t n_freed, completed;
};

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
	struct gp_news news; /* before the last attempt */
	int result;	     /* of the last attempt */
	struct gp_round_stats spent[GP_N_ROUNDS]; /* for this one */
	struct gp_handed handed;
};

/* Before an attempt that is made outside the rounds. */
struct gp_news gp_rounds_news(const struct gp_rounds *rounds);

/* 0, or what the last attempt said. */
int gp_rounds_run(struct gp_rounds *rounds);
