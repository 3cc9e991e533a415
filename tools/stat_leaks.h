/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

#include "stat_command.h"
#include "stat_stack.h"

/* gpupool-stat leaks, and oom. */
enum stat_exit stat_leaks_run(const struct stat_command *command, const struct stat_options *options);
enum stat_exit stat_oom_run(const struct stat_command *command, const struct stat_options *options);

/* An answer that --json has saved, to be released; or NULL after a message, in which it has that name. */
json_t *stat_leaks_read(const char *path, const char *name);

/* The screen of one answer. */
void stat_leaks_show(const struct stat_process *process, const struct stat_options *options);

/* Prints "  title: stack", if there is one. */
void stat_leaks_print_stack(struct stat_stacks *stacks, const char *title, const json_t *frames);
