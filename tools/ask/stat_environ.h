/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* The environment that a process was started with, and the labels in it: job, rank, pod and so on (common/job.def). */

#include "stat_survey.h"

/* Returns the entries, with a NUL after each and another at the end; the caller frees them. NULL: not readable. */
char *stat_environ_read(pid_t pid);

/* Returns the value of a variable, or NULL. */
const char *stat_environ_find(const char *variables, const char *name);

/* Writes the labels as "job 8812 rank 3 pod train-0", or "" if there are none. The text is clean. */
void stat_environ_labels(char *text, size_t size, const struct stat_process *process);

/* Calls fn for each label, with a clean value. */
typedef void (*stat_environ_label_fn)(void *arg, const char *label, const char *value);
void stat_environ_each_label(const struct stat_process *process, stat_environ_label_fn fn, void *arg);

/* Returns the labels as a JSON object of strings. */
json_t *stat_environ_labels_json(const struct stat_process *process);
