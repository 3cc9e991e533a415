/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* Reports the result of a survey: titles, JSON, messages and an exit code. */

#include "stat_options.h"
#include "stat_survey.h"

/* Prints "pid 41822  python train.py", cut to the width of the terminal. */
void stat_report_title(const struct stat_process *process, const char *command);

/*
 * Prints one object on one line. If the user named exactly one process, the object is the answer of that process, and
 * nothing is printed without an answer; otherwise it is "gpupool.NAME-list/1".
 */
void stat_report_json(const struct stat_survey *survey, const struct stat_options *options, const char *name);

/* Prints an object on one line, in a form that is safe for a terminal. */
void stat_report_print(const json_t *value);

/* Prints "gpupool.list/2", from answers to "status". */
void stat_report_list_json(const struct stat_survey *survey);

/* Prints "gpupool.NAME/VERSION" with a list of members, which it releases, and the processes that gave no answer. */
void stat_report_list(const struct stat_survey *survey, const char *name, const char *member, json_t *members);

/* Reports on stderr if not all processes were asked. */
void stat_report_incomplete(const struct stat_survey *survey);

/* Prints "    41822  python train.py" on stderr, for each process. */
void stat_report_commands(const struct stat_survey *survey);

/*
 * Reports on stderr which processes gave no answer, and why, unless the JSON list has these errors. Returns STAT_OK if
 * a process answered and no process that the user named failed; otherwise the exit code of the first failure.
 */
enum stat_exit stat_report_errors(const struct stat_survey *survey, const struct stat_options *options);
