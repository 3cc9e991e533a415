/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* The commands that change a process: exactly one, whether it is named or the only one; and no more than once. */

#include "stat_command.h"

enum stat_exit stat_reclaim_run(const struct stat_command *command, const struct stat_options *options);
void stat_reclaim_show(const struct stat_process *process, const struct stat_options *options);

/* Asks if there are no words, or "get". */
enum stat_exit stat_limit_run(const struct stat_command *command, const struct stat_options *options);

enum stat_exit stat_defer_run(const struct stat_command *command, const struct stat_options *options);
void stat_defer_show(const struct stat_process *process, const struct stat_options *options);

/* Lists the regions if there are no words, or "list". */
enum stat_exit stat_region_run(const struct stat_command *command, const struct stat_options *options);
void stat_region_show(const struct stat_process *process, const struct stat_options *options);

/* Asks if there are no words; its screen is stat_show_stacks(). */
enum stat_exit stat_stacks_run(const struct stat_command *command, const struct stat_options *options);
