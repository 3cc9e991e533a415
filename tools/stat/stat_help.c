/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* The completions of shells parse these summaries (completions/): each word to complete must begin its line. */

#include "stat_help.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

enum { SYNOPSIS_WIDTH = 9 };

const struct stat_option stat_help_options[] = {
	{STAT_TAKES_QUIET, "-q", "-q, --quiet      only the process ids"},
	{STAT_TAKES_CHECK, "--check", "--check          check all watched memory first"},
	{STAT_TAKES_MAX, "-n", "-n, --max=MAX    show at most MAX blocks, or rows"},
	{STAT_TAKES_DEVICE, "--device", "--device=N       only contexts on device N"},
	{STAT_TAKES_PINNED, "--pinned", "--pinned         pinned host memory instead of device memory"},
	{STAT_TAKES_POOL, "--pool", "--pool=KIND      none, simple, binned, split or vmm; default: all"},
	{STAT_TAKES_LIMIT, "--limit", "--limit=SIZE     limit of each device; default: as recorded"},
	{STAT_TAKES_REUSE, "--reuse", "--reuse=MODE     ordered, completed or auto; default: auto, as recorded"},
	{STAT_TAKES_BY, "--by", "--by=WORD        site, library, size or age; default: site"},
	{STAT_TAKES_MIN, "--min", "--min=SIZE       only rows of at least SIZE"},
	{STAT_TAKES_OLDER, "--older", "--older=SEC      only blocks that are at least SEC seconds old"},
	{STAT_TAKES_DIFF, "--diff", "--diff=FILE      compare with an answer that --json printed before"},
	{STAT_TAKES_FROM, "--from", "--from=FILE      show such an answer; do not ask a process"},
	{STAT_TAKES_WATCH, "--watch", "--watch=SEC      repeat every SEC seconds, until interrupted"},
	{STAT_TAKES_COUNT, "--count", "--count=N        with --watch: stop after N answers"},
	{STAT_TAKES_ASCII, "--ascii", "--ascii          print only ASCII"},
	{STAT_TAKES_NO_COLOR, "--no-color", "--no-color       no colours; NO_COLOR in the environment does the same"},
	{STAT_TAKES_CHANGES, "--allow-changes", "--allow-changes  enable the keys that change a process"},
	{STAT_TAKES_QUERY, "--query", "--query=FIELDS   print these fields, as CSV"},
	{STAT_TAKES_QUERY, "--format", "--format=csv[,noheader][,nounits]"},
	{STAT_TAKES_LEVELS, "--warn", "--warn=LEVELS    as in used=80%,total=8GiB,ooms=1; default: used=80%,ooms=1"},
	{STAT_TAKES_LEVELS, "--crit", "--crit=LEVELS    the same form; default: used=95%"},
	{STAT_TAKES_TO, "--to",
		"--to=FORMAT      convert: torch, chrome, rmm, pprof or folded\n"
		"                   metrics: openmetrics or prometheus; default: the first"},
	{STAT_TAKES_OUTPUT, "-o", "-o, --output=FILE\n                   the file to write; default: stdout"},
	{STAT_TAKES_LISTEN, "--listen", "--listen=ADDRESS where to listen; default: 127.0.0.1:9791"},
	{0, NULL, NULL},
};

/* Prints the description beside the synopsis or, if that is long, on the next line. */
static void print_command(const struct stat_command *command, bool is_default)
{
	int width = (int)strlen(command->synopsis);

	printf("  %-8s %-*s", command->name, SYNOPSIS_WIDTH, command->synopsis);
	if (width > SYNOPSIS_WIDTH)
		printf("\n  %8s %*s", "", SYNOPSIS_WIDTH, "");
	printf(" %s%s\n", command->help, is_default ? " (default)" : "");
}

static void print_options(unsigned takes)
{
	for (const struct stat_option *o = stat_help_options; o->name; o++)
		if (takes & o->taken)
			printf("  %s\n", o->text);
}

static void print_common_help(bool has_json)
{
	if (has_json)
		puts("  --json           one JSON object instead of text");
	puts("  --timeout=SEC    how long to wait for answers (default: 2)\n"
	     "  -h, --help       this text");
}

void stat_help(void)
{
	puts("usage: gpupool-stat [COMMAND] [options] [PID...]\n"
	     "\n"
	     "Looks into programs that run with gpupool.\n");
	for (const struct stat_command *c = stat_commands; c->name; c++)
		print_command(c, c == stat_commands);
	puts("\nWithout a PID: all your processes, or as root those of all users. A command that\n"
	     "changes a process then requires that there is only one.\n");
	print_options(STAT_TAKES_REPEAT);
	print_common_help(true);
	puts("  --version        the version\n"
	     "\n"
	     "gpupool-stat COMMAND --help lists the options of a command. See gpupool-stat(1).");
}

void stat_help_command(const struct stat_command *command)
{
	printf("usage: gpupool-stat %s [options]%s%s\n\n%c%s.\n\n", command->name, *command->synopsis ? " " : "",
		command->synopsis, toupper(command->help[0]), command->help + 1);
	print_options(stat_command_takes(command));
	print_common_help(!(command->takes & STAT_HAS_NO_JSON));
}
