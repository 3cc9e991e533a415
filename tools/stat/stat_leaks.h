/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

#include "stat_command.h"
#include "stat_stack.h"

/* gpupool-stat leaks and gpupool-stat oom. */
enum stat_exit stat_leaks_run(const struct stat_command *command, const struct stat_options *options);
enum stat_exit stat_oom_run(const struct stat_command *command, const struct stat_options *options);

/* Reads an answer that --json has saved; the caller releases it. Returns NULL after a message, which uses the name. */
json_t *stat_leaks_read(const char *path, const char *name);

/* Prints one answer. */
void stat_leaks_show(const struct stat_process *process, const struct stat_options *options);

/* Prints "  title: stack", if there is one. */
void stat_leaks_print_stack(struct stat_stacks *stacks, const char *title, const json_t *frames);
