/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * The times that memory ran out in a recording: the list "episodes" in the facts, and "refused", the moments of failed
 * allocations. An episode that ends with a failure tells the cause in the words of the process's own message
 * (shim/oom/oom_say.c), as far as a recording has it.
 */

#include "tools/answer/stat_stack.h"
#include "tools/convert/stat_source.h"

/*
 * An episode without enough memory: from the driver's first refusal until the allocation is served or fails. If a limit
 * forbids an allocation, the driver is not asked, and the episode consists of the failure alone.
 */
struct report_episode {
	bool is_open;
	uint64_t ns, returned_bytes, n_denied;
	uint32_t thread;
};

struct report_failures {
	struct report_episode episodes[HISTORY_MEMORIES_MAX];
	const struct stat_source *source;
	struct stat_stacks *stacks; /* NULL: the recording has no stacks */
	json_t *refused, *done;     /* lists */
	json_t *first;              /* the first error in one sentence, or NULL */
	uint64_t n_refused, n_episodes;
	uint64_t n_steps; /* of searches for the largest free block */
};

void report_failures_init(struct report_failures *failures, const struct stat_source *source);
void report_failures_take(
	struct report_failures *failures, const struct history *history, const struct history_event *event);

/* Adds the lists to the facts, and a note if they are cut. */
void report_failures_add(json_t *facts, const struct report_failures *failures);
void report_failures_deinit(struct report_failures *failures);
