/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* Chosen fields as comma-separated values, in the manner of nvidia-smi: --query and --format. */

#include "stat_show.h"

enum stat_query_rows {
	STAT_QUERY_PROCESSES, /* a row for each, its devices added up */
	STAT_QUERY_DEVICES,   /* a row for each device of each */
};

/* Asks, and prints a line with the names, unless that was not wanted, and the rows. */
enum stat_exit stat_query_run(
	const struct stat_question *question, const struct stat_options *options, enum stat_query_rows rows);
