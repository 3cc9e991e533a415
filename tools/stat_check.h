/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* gpupool-stat check: one line with performance data, and the exit codes that monitoring systems agree on. */

#include "stat_command.h"

/* What it ends with lies beyond the codes of the other commands until it ends. */
enum stat_check {
	STAT_CHECK_OK = 16,
	STAT_CHECK_WARNING,
	STAT_CHECK_CRITICAL,
	STAT_CHECK_UNKNOWN,
};

enum stat_exit stat_check_run(const struct stat_command *command, const struct stat_options *options);

/* The exit code of the process, from 0 to 3, out of that; whatever else went wrong is unknown. */
int stat_check_exit(enum stat_exit result);
