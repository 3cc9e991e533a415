/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* Groups the blocks in an answer to "leaks" by call site, library, size or age. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "stat_stack.h"

enum stat_by { STAT_BY_SITE, STAT_BY_LIBRARY, STAT_BY_SIZE, STAT_BY_AGE, STAT_N_BY };

struct stat_group {
	char *key;      /* the text that is shown; equal groups have equal keys in every answer; not clean */
	uint64_t order; /* the smallest size, or age, of the group; else 0 */
	uint64_t blocks, bytes;
	uint64_t oldest_ns; /* 0: unknown */
	int64_t growth;     /* in bytes */
};

struct stat_groups {
	enum stat_by by;
	struct stat_group *list;
	size_t n, room;
	bool has_growth;
};

/* Parses the value of --by; NULL means by site. Returns false if it is unknown. */
bool stat_by_parse(const char *word, enum stat_by *ret);

/* Makes the groups. Those with the most bytes come first; sizes and ages are in ascending order. */
void stat_groups_make(struct stat_groups *groups, enum stat_by by, const json_t *reply, struct stat_stacks *stacks);
void stat_groups_free(struct stat_groups *groups);

/* Sets how each group has grown since the older ones. Adds an empty group for each that only the older ones have. */
void stat_groups_compare(struct stat_groups *groups, const struct stat_groups *older);
