/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Thins a history out to the points of a curve. Its time is cut into equal parts. Of each part three points stay: the
 * highest used, the highest total, and the last. So no peak is lost, and the number of points is bounded.
 */

#include "replay_history.h"

struct history_sample {
	uint64_t ns, used_bytes, total_bytes;
};

struct samples_memory {
	struct history_sample *list; /* by time */
	size_t n, size;
	uint64_t part;
	bool is_begun;
	struct history_sample most_used, most_total, last; /* of the part */
};

struct samples {
	struct samples_memory memories[HISTORY_MEMORIES_MAX];
	uint64_t part_ns;
};

/* Prepares for a history of that duration, in n_parts parts: at most three points for each. */
void samples_init(struct samples *samples, uint64_t duration_ns, uint64_t n_parts);
void samples_deinit(struct samples *samples);

void samples_take(struct samples *samples, const struct history *history, const struct history_event *event);

/* Call after the last event: adds the points of the last part. */
void samples_end(struct samples *samples);
