/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* The report of several recordings, such as those of all ranks of a job: one page with a timeline for each. */

#include "tools/ask/stat_command.h"

/* Writes the page to options->output. Returns the exit code, after a message unless it is STAT_OK. */
enum stat_exit report_several(const struct stat_options *options);
