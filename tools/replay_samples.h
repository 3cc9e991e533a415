/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * A history thinned out to what a curve shows: its time is cut into equal parts, and of each part stay the highest
 * used, the highest reserved, and how it ended. So no peak is lost, however long it is.
 */

#include "replay_history.h"

struct history_sample {
	uint64_t ns, used_bytes, reserved_bytes;
};

struct samples_memory {
	struct history_sample *list; /* by time */
	size_t n, size;
	uint64_t part;
	bool is_begun;
	struct history_sample most_used, most_reserved, last; /* of the part */
};

struct samples {
	struct samples_memory memories[HISTORY_MEMORIES_MAX];
	uint64_t part_ns;
};

/* Those of a history that takes so long: at most three for each part. */
void samples_init(struct samples *samples, uint64_t duration_ns, uint64_t n_parts);
void samples_deinit(struct samples *samples);

void samples_take(struct samples *samples, const struct history *history, const struct history_event *event);

/* After the last. */
void samples_end(struct samples *samples);
