/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* Writes answers to "status" as metrics: those of metrics.def, and some about the processes themselves. */

#include <stdio.h>

#include "stat_node.h"
#include "tools/ask/stat_command.h"

enum stat_metrics_format {
	STAT_METRICS_OPENMETRICS, /* 1.0.0 */
	STAT_METRICS_PROMETHEUS,  /* Prometheus' own text format, 0.0.4 */
};

struct stat_metrics_form {
	enum stat_metrics_format format;
	bool is_all; /* all series, not only the basic ones */
};

#define STAT_METRICS_TYPE_OPENMETRICS "application/openmetrics-text; version=1.0.0; charset=utf-8"
#define STAT_METRICS_TYPE_PROMETHEUS  "text/plain; version=0.0.4; charset=utf-8"

/* Reads --to and --collect. Returns false after a message. */
bool stat_metrics_choose(const struct stat_options *options, struct stat_metrics_form *ret_form);

/* Returns the question whose answers stat_metrics_write() needs. */
struct stat_question stat_metrics_question(const struct stat_options *options);

/*
 * Writes the metrics. Answers may be hostile, but each series is written once, and no text of a process can break out
 * of its label. The processes of a foreign user have a limited number of series; survey->missed counts the processes
 * left out. node: the counters of the node, or NULL.
 */
void stat_metrics_write(
	FILE *out, struct stat_survey *survey, const struct stat_node *node, struct stat_metrics_form form);

/* Prints the metrics. It is not a failure if there are no processes: the metrics say so. */
enum stat_exit stat_metrics_run(const struct stat_command *command, const struct stat_options *options);
