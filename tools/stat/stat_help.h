/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* The summaries that --help prints. */

#include "stat_commands.h"

/* The options that only some commands take, with their lines of the summary. Ends with a row without a name. */
struct stat_option {
	unsigned taken; /* STAT_TAKES_* */
	const char *name, *text;
};
extern const struct stat_option stat_help_options[];

void stat_help(void);
void stat_help_command(const struct stat_command *command);
