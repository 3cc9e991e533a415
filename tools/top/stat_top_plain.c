/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "stat_top.h"

enum stat_exit stat_top_run(const struct stat_command *command, const struct stat_options *options)
{
	stat_error("gpupool-stat list --watch=1 prints lines.", "this gpupool-stat was built without ncurses.");
	return STAT_FAILED;
}
