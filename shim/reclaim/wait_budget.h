/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * The time that the threads of a process may wait for other processes: at most GP_WAIT_NS for a request and
 * GP_WAIT_MINUTE_NS in any minute. A program that looks for the largest possible allocation by trial runs out of memory
 * on purpose, again and again, and must not wait each time. So after each wait without success the next one may take
 * only half as long, and there is none after the eighth, until a wait has served a request or a minute without waits
 * has passed.
 */

#include <stdbool.h>
#include <stdint.h>

#define GP_WAIT_NS        UINT64_C(2000000000)
#define GP_WAIT_MINUTE_NS UINT64_C(10000000000)

enum { GP_WAIT_SECONDS = 61 }; /* those that a minute touches */

struct gp_wait_budget {
	uint64_t granted_ns; /* to waits that have not ended */
	unsigned n_failed;   /* waits in a row that served no request */
	struct gp_wait_second {
		uint64_t second, spent_ns; /* of waits that ended in that second of the clock */
	} seconds[GP_WAIT_SECONDS];
};

/* Returns how long a wait that begins now may take: 0 if too little is left to be of use. */
uint64_t gp_wait_budget_grant(struct gp_wait_budget *budget, uint64_t now_ns);

/* Ends a wait that was granted. waited_ns: 0 if the thread did not wait after all. */
void gp_wait_budget_end(
	struct gp_wait_budget *budget, uint64_t now_ns, uint64_t granted_ns, uint64_t waited_ns, bool is_served);
