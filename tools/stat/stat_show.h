/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* Prints the answers to "blocks", "limit" and "config". */

#include "tools/ask/stat_command.h"

enum stat_exit stat_blocks_run(const struct stat_command *command, const struct stat_options *options);
void stat_blocks_show(const struct stat_process *process, const struct stat_options *options);
void stat_limit_show(const struct stat_process *process, const struct stat_options *options);
void stat_config_show(const struct stat_process *process, const struct stat_options *options);

/* Prints the table of an answer's "callers": how much each library holds. */
void stat_show_callers(const json_t *callers);
