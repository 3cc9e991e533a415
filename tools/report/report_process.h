/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* Makes the report of a running process: its present state. */

#include "report_events.h"
#include "tools/stat/stat_source.h"

/* Writes segments and blocks as events, and the rest into facts. Returns STAT_OK, or the exit code after a message. */
enum stat_exit report_process(struct report_events *events, json_t *facts, const struct stat_source *source);
