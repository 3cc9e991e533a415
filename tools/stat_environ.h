/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* The environment that a process was started with, and which job and rank it is by that. */

#include "stat_survey.h"

/* NUL between its entries and two at the end, to be freed; NULL if it cannot be seen. */
char *stat_environ_read(pid_t pid);

/* The value of a variable, or NULL. */
const char *stat_environ_find(const char *variables, const char *name);

/* "job 8812 rank 3 pod train-0", "" if it has none of them. Clean. */
void stat_environ_labels(char *text, size_t size, const struct stat_process *process);

/* Calls back for each of them, with a clean value. */
typedef void (*stat_environ_label_fn)(void *arg, const char *label, const char *value);
void stat_environ_each_label(const struct stat_process *process, stat_environ_label_fn fn, void *arg);

/* The same as an object: job, rank and so on as texts. */
json_t *stat_environ_labels_json(const struct stat_process *process);
