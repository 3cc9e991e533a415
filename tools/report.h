/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* gpupool-stat report: one HTML file that shows a recording, a process, or who held memory. */

#include <stdio.h>

#include "stat_command.h"
#include "stat_source.h"

enum stat_exit report_command(const struct stat_command *command, const struct stat_options *options);

/* All of the file. n_max: at most so many events for the map; UINT64_MAX: a million. */
enum stat_exit report_write(FILE *out, const struct stat_source *source, uint64_t n_max);
