/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* Chosen fields as comma-separated values, in the manner of nvidia-smi: --query and --format. */

#include "tools/ask/stat_options.h"
#include "tools/ask/stat_survey.h"

enum stat_query_rows {
	STAT_QUERY_PROCESSES, /* one row per process, with the sums of its devices */
	STAT_QUERY_DEVICES,   /* one row per device of each process */
};

/* Asks the processes. Prints a line with the names of the fields, unless --format has noheader, and the rows. */
enum stat_exit stat_query_run(
	const struct stat_question *question, const struct stat_options *options, enum stat_query_rows rows);
