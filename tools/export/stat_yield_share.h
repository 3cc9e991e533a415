/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Bounds how much a process, and a user, may disturb the others. A request costs the time for which the others cache
 * less because of it: "wanted" the time for which they cache nothing, as far as an earlier request has not paid for it,
 * and "yield" a fixed time. A process may spend STAT_YIELD_PID_NS a minute, which is as long as it waits for others by
 * itself (shim/reclaim/wait_budget.h), and a user twice that.
 */

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum { STAT_YIELD_USERS = 256, STAT_YIELD_PIDS = 1024 /* that are remembered */ };

#define STAT_YIELD_PID_NS    INT64_C(10000000000) /* a minute */
#define STAT_YIELD_USER_NS   INT64_C(20000000000) /* a minute */
#define STAT_YIELD_WANTED_NS INT64_C(500000000)
#define STAT_YIELD_COST_NS   INT64_C(20000000)

struct stat_yield_share {
	uint64_t id;
	int64_t left_ns, at_ns; /* what it could spend at that time; at_ns 0: the entry is free */
	int64_t paid_until_ns;  /* the others cache nothing until then, on its account */
};

struct stat_yield_shares {
	struct stat_yield_share users[STAT_YIELD_USERS], pids[STAT_YIELD_PIDS];
};

/* Pays for a request. Returns false, and pays nothing, if too little is left. now_ns: above 0. */
bool stat_yield_shares_pay(struct stat_yield_shares *shares, uint64_t user, pid_t pid, bool is_wanted, int64_t now_ns);
