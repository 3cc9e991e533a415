/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* gpupool-stat report: one HTML file that shows a recording, a process, or the call sites of a saved answer. */

#include <stdio.h>

#include "tools/ask/stat_command.h"
#include "tools/convert/stat_source.h"

enum stat_exit report_command(const struct stat_command *command, const struct stat_options *options);

/* Writes the whole file. n_max: the most events for the map; UINT64_MAX: a million. */
enum stat_exit report_write(FILE *out, const struct stat_source *source, uint64_t n_max);
