/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

#include "tools/ask/stat_command.h"

/* gpupool-stat leaks: the blocks that a program holds, by call site. */
enum stat_exit stat_leaks_run(const struct stat_command *command, const struct stat_options *options);
void stat_leaks_show(const struct stat_process *process, const struct stat_options *options);
