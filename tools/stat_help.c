/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Shells complete words by these summaries (completions/), so their form matters: what is completed begins its line. */

#include "stat_help.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

enum { SYNOPSIS_WIDTH = 9 };

const struct stat_option stat_help_options[] = {
	{STAT_TAKES_QUIET, "-q", "-q, --quiet      only the process ids"},
	{STAT_TAKES_CHECK, "--check", "--check          look at all that is watched first"},
	{STAT_TAKES_MAX, "-n", "-n, --max=MAX    at most so many blocks, or rows"},
	{STAT_TAKES_DEVICE, "--device", "--device=N       only of contexts on this device"},
	{STAT_TAKES_PINNED, "--pinned",
		"--pinned         pinned host memory instead of device memory"},
	{STAT_TAKES_POOL, "--pool", "--pool=KIND      none, simple, binned, split or vmm; default: each of them"},
	{STAT_TAKES_LIMIT, "--limit", "--limit=SIZE     of each device; default: as it was"},
	{STAT_TAKES_REUSE, "--reuse", "--reuse=MODE     ordered, completed or auto; default: auto, as it was"},
	{STAT_TAKES_BY, "--by", "--by=WORD        site, library, size or age; default: site"},
	{STAT_TAKES_MIN, "--min", "--min=SIZE       no rows with less"},
	{STAT_TAKES_OLDER, "--older", "--older=SEC      only blocks that are that old"},
	{STAT_TAKES_DIFF, "--diff", "--diff=FILE      compare with what --json has printed before"},
	{STAT_TAKES_FROM, "--from", "--from=FILE      show that, and ask nobody"},
	{STAT_TAKES_WATCH, "--watch", "--watch=SEC      again and again, until interrupted"},
	{STAT_TAKES_COUNT, "--count", "--count=N        with --watch: so often"},
	{STAT_TAKES_ASCII, "--ascii", "--ascii          nothing but ASCII"},
	{STAT_TAKES_NO_COLOR, "--no-color", "--no-color       no colours; NO_COLOR in the environment does the same"},
	{STAT_TAKES_CHANGES, "--allow-changes", "--allow-changes  keys that change a process work"},
	{STAT_TAKES_QUERY, "--query", "--query=FIELDS   these fields, as CSV"},
	{STAT_TAKES_QUERY, "--format", "--format=csv[,noheader][,nounits]"},
	{STAT_TAKES_LEVELS, "--warn", "--warn=LEVELS    as in used=80%,total=8GiB,ooms=1; default: used=80%,ooms=1"},
	{STAT_TAKES_LEVELS, "--crit", "--crit=LEVELS    likewise; default: used=95%"},
	{STAT_TAKES_TO, "--to",
		"--to=FORMAT      convert: torch, chrome, rmm, pprof or folded\n"
		"                   metrics: openmetrics or prometheus; default: the first"},
	{STAT_TAKES_OUTPUT, "-o", "-o, --output=FILE\n                   where to write it; default: stdout"},
	{STAT_TAKES_LISTEN, "--listen", "--listen=ADDRESS where to serve; default: 127.0.0.1:9791"},
	{0, NULL, NULL},
};

/* What it does stands beside what it takes or, where that is long, below. */
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
	puts("\nWithout a PID: all processes of yours, as root those of all users; what changes\n"
	     "something wants there to be only one.\n");
	print_options(STAT_TAKES_REPEAT);
	print_common_help(true);
	puts("  --version        the version\n"
	     "\n"
	     "gpupool-stat COMMAND --help lists the options of a command. See gpupool-stat(1).");
}

void stat_help_command(const struct stat_command *command)
{
	printf("usage: gpupool-stat %s [options]%s%s\n\n%c%s.\n\n", command->name,
		*command->synopsis ? " " : "", command->synopsis, toupper(command->help[0]),
		command->help + 1);
	print_options(stat_command_takes(command));
	print_common_help(!(command->takes & STAT_HAS_NO_JSON));
}
