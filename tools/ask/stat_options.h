/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* The command line of gpupool-stat, parsed: the rows of options.def, process ids and words. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum { STAT_WORDS_MAX = 3, STAT_NAMES_MAX = 16 };

/* The values of an option that may be repeated. */
struct stat_names {
	const char *names[STAT_NAMES_MAX];
	size_t n;
};

struct stat_options {
	const pid_t *pids;
	size_t n_pids;
	const char *file;   /* of commands that read a file: its name, as typed */
	char *const *files; /* of commands that read several: all names */
	size_t n_files;
	const char *words[STAT_WORDS_MAX]; /* of commands with a verb: the words beside the process id */
	size_t n_words;
	bool is_overview; /* neither a command nor a process was named */

#define OPTION(id, name, letter, type, member, function, value, help) type member;
#include "options.def"
};

/* Numbers of the rows. */
enum {
#define OPTION(id, ...) STAT_OPTION_##id,
#include "options.def"
	STAT_N_OPTIONS
};
_Static_assert(STAT_N_OPTIONS < 63, "sets of options are made of bits of a uint64_t");

/* Sets of options: STAT_TAKES_QUIET and so on. */
enum {
#define OPTION(id, ...) STAT_TAKES_##id = INT64_C(1) << STAT_OPTION_##id,
#include "options.def"
	STAT_TAKES_REPEAT = STAT_TAKES_WATCH | STAT_TAKES_COUNT,
	STAT_TAKES_LOOK = STAT_TAKES_ASCII | STAT_TAKES_NO_COLOR,
	STAT_TAKES_FIELDS = STAT_TAKES_QUERY | STAT_TAKES_FORMAT,
	STAT_TAKES_MOMENT = STAT_TAKES_AT | STAT_TAKES_DEVICE | STAT_TAKES_PINNED,
	STAT_TAKES_LEVELS = STAT_TAKES_WARN | STAT_TAKES_CRIT,
};
