/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* Makes the report of a recording. */

#include "tools/convert/stat_source.h"
#include "report_events.h"

/* Writes the events of the map, and the rest into facts. Returns STAT_OK, or the exit code after a message. */
enum stat_exit report_recording(
	struct report_events *events, json_t *facts, const struct stat_source *source, uint64_t n_max);

/* The same without the map: writes no events, and makes fewer samples, for a page of several recordings. */
enum stat_exit report_recording_curves(json_t *facts, const struct stat_source *source);

/* Returns an entry of "memories", without samples and peaks. */
json_t *report_memory(unsigned number);
