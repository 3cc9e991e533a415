/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

#include "tools/ask/stat_command.h"

/* gpupool-stat list: one line for each process. */
enum stat_exit stat_list_run(const struct stat_command *command, const struct stat_options *options);

/* Prints the table, from answers to "status". Prints nothing if no process has answered. */
void stat_list_show(const struct stat_survey *survey);
