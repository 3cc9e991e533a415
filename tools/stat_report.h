/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* What became of a survey, as JSON, as messages and as an exit code. */

#include "stat_show.h"

/*
 * One object on one line: the process's own answer if exactly one process was asked for by number
 * (nothing, if it gave none), else "gpupool.NAME-list/1".
 */
void stat_report_json(
	const struct stat_survey *survey, const struct stat_options *options, const char *name);

/* An object on one line, fit for a terminal. */
void stat_report_print(const json_t *value);

/* "gpupool.list/1", from answers to "status". */
void stat_report_list_json(const struct stat_survey *survey);

/* Says on stderr that not all processes have been asked, if that is so. */
void stat_report_incomplete(const struct stat_survey *survey);

/* "    41822  python train.py" on stderr, for each process. */
void stat_report_commands(const struct stat_survey *survey);

/*
 * Says on stderr which processes gave no answer and why; in JSON where the object has no place for
 * it. STAT_OK if somebody answered, and nobody who was asked for by number failed.
 */
enum stat_exit stat_report_errors(
	const struct stat_survey *survey, const struct stat_options *options);
