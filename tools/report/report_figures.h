/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * The key figures at the top of a report: for each memory an entry of the list "figures" in the facts. Figures of a
 * recording are counted while its history runs; those of a process come from its counters.
 */

#include <jansson.h>

#include "tools/ask/stat_reply.h"
#include "tools/replay/replay_history.h"

enum { REPORT_LIMITS_MAX = 1000 };

struct report_figures {
	struct report_figure {
		uint64_t peak_used_bytes, peak_total_bytes;
		uint64_t hits, misses, n_failed;
		json_t *limits; /* [time, bytes or null] for each change; NULL: there is none yet */
		uint64_t n_limits;
	} memories[HISTORY_MEMORIES_MAX];
	struct replay_map asked; /* threads whose next allocation in a memory is a miss */
};

void report_figures_take(
	struct report_figures *figures, const struct history *history, const struct history_event *event);
void report_figures_deinit(struct report_figures *figures);

/*
 * Adds the entry of one memory. has_driver: false for a trace, which knows neither hits, driver calls nor limits. Adds
 * the changes of the limit to the entry of "memories", too.
 */
void report_figures_add(json_t *facts, json_t *memory, const struct report_figures *figures,
	const struct history *history, unsigned number, bool has_driver);

/* Adds the entry of one memory of a process, from its counters. */
void report_figures_add_counters(json_t *facts, const json_t *counters, unsigned number);

/* Returns "device 0" or "pinned memory". */
const char *report_memory_name(char name[static STAT_ERROR_MAX], unsigned number);
