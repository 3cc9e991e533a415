/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* gpupool-stat oom --job: the out-of-memory errors of all processes of a job, also of those that have ended. */

#include "tools/answer/stat_saved.h"
#include "tools/ask/stat_command.h"

/*
 * Shows the reports of the processes of options->job: a line for each or, if there is only one, all of it. The survey
 * has the answers of all processes to "oom".
 */
enum stat_exit stat_oom_job_show(
	struct stat_survey *survey, const struct stat_command *command, const struct stat_options *options);

/* Prints "pid 7 has ended: python train.py". */
void stat_oom_title(const struct stat_saved *saved);
