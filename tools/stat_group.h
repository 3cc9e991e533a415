/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* What a program holds, put together from an answer to "leaks": by call site, library, size or age. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "stat_stack.h"

enum stat_by { STAT_BY_SITE, STAT_BY_LIBRARY, STAT_BY_SIZE, STAT_BY_AGE, STAT_N_BY };

struct stat_group {
	char *key;	/* as it is shown; the same in every answer; not clean */
	uint64_t order; /* of a size or an age: where it begins */
	uint64_t blocks, bytes;
	uint64_t oldest_ns; /* 0: unknown */
	int64_t growth;	    /* in bytes */
};

struct stat_groups {
	enum stat_by by;
	struct stat_group *list;
	size_t n, room;
	bool has_growth;
};

/* The word for it; false if there is none such. NULL: by site. */
bool stat_by_parse(const char *word, enum stat_by *ret);

/* Most bytes first; sizes and ages in their order. */
void stat_groups_make(struct stat_groups *groups, enum stat_by by, const json_t *reply, struct stat_stacks *stacks);
void stat_groups_free(struct stat_groups *groups);

/* How each has grown since the older ones; what has gone since is added, with nothing in it. */
void stat_groups_compare(struct stat_groups *groups, const struct stat_groups *older);
