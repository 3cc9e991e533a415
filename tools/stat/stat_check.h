/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* gpupool-stat check: one line with performance data, and the exit codes that monitoring systems expect. */

#include "tools/text/stat_say.h"

/* The results of a check, with values above all exit codes of other commands. stat_check_exit() maps both to 0..3. */
enum stat_check {
	STAT_CHECK_OK = 16,
	STAT_CHECK_WARNING,
	STAT_CHECK_CRITICAL,
	STAT_CHECK_UNKNOWN,
};

/* Returns the exit code of gpupool-stat, from 0 to 3, for a result. Any failure of another kind counts as unknown. */
int stat_check_exit(enum stat_exit result);
