/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Asks the processes of all users and containers for memory, on behalf of one of them. They are found as for metrics.
 * All are asked at once, and the wait is bounded. A process that is silent is not asked again for a minute, nor is any
 * process of a foreign user with many silent ones: such a user could delay all requests of others.
 */

#include "stat_yield_request.h"
#include "tools/ask/stat_survey.h"

#define STAT_YIELD_ANSWER_NS INT64_C(400000000) /* for all processes together */
#define STAT_YIELD_SILENT_NS INT64_C(60000000000)

enum {
	STAT_YIELD_ASKED = 128,        /* processes that are asked at once */
	STAT_YIELD_ASKED_OF_USER = 32, /* of these, processes of one user */
	STAT_YIELD_SILENT = 512,       /* silent processes that are remembered */
	STAT_YIELD_SILENT_OF_USER = 8, /* once a user has this many, none of that user's processes is asked */
};

struct stat_yield_silent {
	pid_t pid;
	uint64_t start_ticks;
	uint64_t user;    /* as for shares (stat_yield_peer.h) */
	int64_t until_ns; /* 0: the entry is free */
};

struct stat_yield_asker {
	struct stat_survey survey;
	int64_t searched_ns, search_cost_ns;                /* when it was last done, and how long it took */
	struct stat_yield_silent silent[STAT_YIELD_SILENT]; /* a ring: a new one replaces the oldest */
	unsigned n_silent;
	uid_t first_uid; /* where the next request begins, if there are more processes than can be asked at once */
};

/* except: the process that asks. Processes that have started since the last request are found, unless searches take
 * much of the time. */
struct stat_yield_sums stat_yield_ask(
	struct stat_yield_asker *asker, const struct stat_yield_request *request, pid_t except);

void stat_yield_asker_deinit(struct stat_yield_asker *asker);

/* Parses the answer of a process, which may be hostile. Returns false, and sets 0, if it is not a valid one. */
bool stat_yield_answer_parse(
	const char *text, size_t length, const struct stat_yield_request *request, struct stat_yield_sums *ret);
