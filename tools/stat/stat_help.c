/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* The completions of shells parse these summaries (completions/): each word to complete must begin its line. */

#include "stat_help.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "stat_commands.h"
#include "stat_option.h"

enum { SYNOPSIS_WIDTH = 9 };

/* Prints the description beside the synopsis or, if that is long, on the next line. */
static void print_command(const struct stat_command *command, bool is_default)
{
	int width = (int)strlen(command->synopsis);

	printf("  %-8s %-*s", command->name, SYNOPSIS_WIDTH, command->synopsis);
	if (width > SYNOPSIS_WIDTH)
		printf("\n  %8s %*s", "", SYNOPSIS_WIDTH, "");
	printf(" %s%s\n", command->help, is_default ? " (default)" : "");
}

void stat_help(void)
{
	puts("usage: gpupool-stat [COMMAND] [options] [PID...]\n"
	     "\n"
	     "Shows and controls the GPU memory of programs that run with gpupool.\n");
	for (const struct stat_command *c = stat_commands; c->name; c++)
		print_command(c, c == stat_commands);
	puts("\nWithout any argument: the status of the only process, or one table of several.\n"
	     "Without a PID: all your processes, or as root those of all users. A command that\n"
	     "changes a process then requires that there is only one.\n");
	stat_option_print_help(
		STAT_TAKES_REPEAT | STAT_TAKES_JSON | STAT_TAKES_TIMEOUT | STAT_TAKES_HELP | STAT_TAKES_VERSION);
	puts("\ngpupool-stat help COMMAND lists the options of a command. See gpupool-stat(1).");
}

void stat_help_command(const struct stat_command *command)
{
	printf("usage: gpupool-stat %s [options]%s%s\n\n%c%s.\n\n", command->name, *command->synopsis ? " " : "",
		command->synopsis, toupper(command->help[0]), command->help + 1);
	stat_option_print_help(stat_command_takes(command) & ~(uint64_t)STAT_TAKES_VERSION);
}

enum stat_exit stat_help_run(const struct stat_command *command, const struct stat_options *options)
{
	const struct stat_command *other = stat_commands_find(options->words[0]);

	if (!other)
		return STAT_USAGE;
	if (options->n_words)
		stat_help_command(other);
	else
		stat_help();
	return STAT_OK;
}
