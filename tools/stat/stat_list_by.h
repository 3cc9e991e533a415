/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* gpupool-stat list --by: the memory of each job, user or pod on each device. */

#include <stdbool.h>

#include "tools/ask/stat_survey.h"

enum stat_list_by { STAT_LIST_BY_JOB, STAT_LIST_BY_USER, STAT_LIST_BY_POD, STAT_N_LIST_BY };

/* Parses the value of --by. Returns false if it is unknown. */
bool stat_list_by_parse(const char *word, enum stat_list_by *ret);

/* Prints the table, from answers to "status". Prints nothing if no process has answered. */
void stat_list_by_show(const struct stat_survey *survey, enum stat_list_by by);

/* Prints "gpupool.list-by/1". */
void stat_list_by_json(const struct stat_survey *survey, enum stat_list_by by);
