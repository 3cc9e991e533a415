/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "stat_commands.h"

#include <stdint.h>
#include <string.h>

#include "common/nearest.h"
#include "tools/answer/stat_stack.h"
#include "tools/convert/convert.h"
#include "tools/export/stat_export.h"
#include "tools/export/stat_metrics.h"
#include "tools/replay/replay.h"
#include "tools/report/report.h"
#include "tools/top/stat_top.h"

enum {
	SMALL_ANSWER = 1 << 20,
	LARGE_ANSWER = 8 << 20,
};

#define COMMAND(word, functions, words, text, ...) \
	{.name = word, functions.synopsis = words, .help = text, __VA_ARGS__},
#define ASKS                 .run = stat_command_read,
#define RUNS(function)       .run = function,
#define RUNS_BELOW(function) .run = function,
#define SHOWS(function)      .show = function,

const struct stat_command stat_commands[] = {
#include "commands.def"
	{NULL},
};

const struct stat_command *stat_commands_find(const char *name)
{
	const struct stat_command *command = stat_commands;
	struct gp_nearest nearest;

	if (!name)
		return command;
	gp_nearest_init_word(&nearest, name);
	for (; command->name; command++) {
		if (strcmp(command->name, name) == 0)
			return command;
		gp_nearest_try(&nearest, command->name);
	}
	if (nearest.name)
		stat_error("gpupool-stat --help", "there is no command '%s'; did you mean '%s'?", name, nearest.name);
	else
		stat_error("gpupool-stat --help", "there is no command '%s'.", name);
	return NULL;
}
