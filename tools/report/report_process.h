/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* Makes the report of a running process: its present state. */

#include "tools/convert/stat_source.h"
#include "report_events.h"

/* Writes segments and blocks as events, and the rest into facts. Returns STAT_OK, or the exit code after a message. */
enum stat_exit report_process(struct report_events *events, json_t *facts, const struct stat_source *source);
