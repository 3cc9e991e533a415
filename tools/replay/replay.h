/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* gpupool-stat replay: runs the allocator on a recording or a trace. */

#include "tools/ask/stat_command.h"

enum stat_exit replay_command(const struct stat_command *command, const struct stat_options *options);
