/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

#include "tools/ask/stat_command.h"

/* gpupool-stat status: memory, limits and counters of each device. */
enum stat_exit stat_status_run(const struct stat_command *command, const struct stat_options *options);
void stat_status_show(const struct stat_process *process, const struct stat_options *options);
