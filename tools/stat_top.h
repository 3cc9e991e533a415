/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* gpupool-stat top. Two versions of it: with ncurses (stat_top.c), and without (stat_top_plain.c), where it says so. */

#include "stat_command.h"

enum stat_exit stat_top_run(const struct stat_command *command, const struct stat_options *options);
