/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* gpupool-stat top, with ncurses (stat_top.c). Without ncurses the command only reports that (stat_top_plain.c). */

#include "tools/ask/stat_command.h"

enum stat_exit stat_top_run(const struct stat_command *command, const struct stat_options *options);
