/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* What a report tells of a process: how it is now. */

#include "report_events.h"
#include "stat_source.h"

/* Puts what lies where out as events, and the rest into facts. STAT_OK, or the exit code after a message. */
enum stat_exit report_process(struct report_events *events, json_t *facts, const struct stat_source *source);
