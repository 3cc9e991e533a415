/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

#include "tools/ask/stat_command.h"

/* gpupool-stat oom: the last out-of-memory error of a process, also of one that has ended. */
enum stat_exit stat_oom_run(const struct stat_command *command, const struct stat_options *options);
void stat_oom_show(const struct stat_process *process, const struct stat_options *options);
