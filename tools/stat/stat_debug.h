/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

#include "tools/ask/stat_command.h"

/* gpupool-stat debug: shows the invalid writes that GPUPOOL_DEBUG has found. */
enum stat_exit stat_debug_run(const struct stat_command *command, const struct stat_options *options);
void stat_debug_show(const struct stat_process *process, const struct stat_options *options);
