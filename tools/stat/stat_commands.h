/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* The commands of gpupool-stat, and the functions of this folder that the rows of commands.def name. */

#include "tools/ask/stat_command.h"

/* All commands. The list ends with a row without a name; the first is the default. */
extern const struct stat_command stat_commands[];

/* Returns the command of that name, NULL: the default. Returns NULL after a message if there is none. */
const struct stat_command *stat_commands_find(const char *name);

#define COMMAND(name, functions, ...) functions
#define ASKS
#define RUNS(function) enum stat_exit function(const struct stat_command *command, const struct stat_options *options);
#define RUNS_BELOW(function)
#define SHOWS(function) void function(const struct stat_process *process, const struct stat_options *options);
#include "commands.def"
#undef ASKS
#undef RUNS
#undef RUNS_BELOW
#undef SHOWS
