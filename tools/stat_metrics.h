/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* What processes answer to "status", as metrics: metrics.def, and some about the processes themselves. */

#include <stdio.h>

#include "stat_command.h"

enum stat_metrics_format {
	STAT_METRICS_OPENMETRICS, /* 1.0.0 */
	STAT_METRICS_PROMETHEUS,  /* Prometheus' own text format, 0.0.4 */
};

#define STAT_METRICS_TYPE_OPENMETRICS "application/openmetrics-text; version=1.0.0; charset=utf-8"
#define STAT_METRICS_TYPE_PROMETHEUS  "text/plain; version=0.0.4; charset=utf-8"

/* What has to be asked for stat_metrics_write(). */
struct stat_question stat_metrics_question(const struct stat_options *options);

/*
 * Whatever was answered: each series is there once, and no text of a process can end its label. The processes of a
 * foreign user have a limited number of series; survey->missed says how many processes were left out.
 */
void stat_metrics_write(FILE *out, struct stat_survey *survey, enum stat_metrics_format format);

/* Prints them. That there are no processes is no failure: it is what they say. */
enum stat_exit stat_metrics_run(const struct stat_command *command, const struct stat_options *options);
