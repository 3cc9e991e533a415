/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* The commands that change a process: the one that the user names or the only one that runs. --watch is refused. */

#include "tools/ask/stat_command.h"

enum stat_exit stat_reclaim_run(const struct stat_command *command, const struct stat_options *options);
void stat_reclaim_show(const struct stat_process *process, const struct stat_options *options);

/* Without words, or with "get", only shows the limits. */
enum stat_exit stat_limit_run(const struct stat_command *command, const struct stat_options *options);

enum stat_exit stat_defer_run(const struct stat_command *command, const struct stat_options *options);
void stat_defer_show(const struct stat_process *process, const struct stat_options *options);

/* Without words, or with "list", lists the regions. */
enum stat_exit stat_region_run(const struct stat_command *command, const struct stat_options *options);
void stat_region_show(const struct stat_process *process, const struct stat_options *options);

/* Without words, only shows the setting. */
enum stat_exit stat_stacks_run(const struct stat_command *command, const struct stat_options *options);
void stat_stacks_show(const struct stat_process *process, const struct stat_options *options);
