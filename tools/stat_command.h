/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* What gpupool-stat can be told to do. */

#include "stat_show.h"

/*
 * Options of a command, besides --help, --json and --timeout, which all of them take, and --watch and --count, which
 * all of them take that are not done once.
 */
enum {
	STAT_TAKES_QUIET = 1 << 0,
	STAT_TAKES_MAX = 1 << 1,
	STAT_TAKES_DEVICE = 1 << 2,
	STAT_TAKES_PINNED = 1 << 3,
	STAT_TAKES_FILE = 1 << 4, /* instead of process ids */
	STAT_TAKES_POOL = 1 << 5,
	STAT_TAKES_LIMIT = 1 << 6,
	STAT_TAKES_REUSE = 1 << 7,
	STAT_TAKES_BY = 1 << 8,
	STAT_TAKES_MIN = 1 << 9,
	STAT_TAKES_OLDER = 1 << 10,
	STAT_TAKES_DIFF = 1 << 11,
	STAT_TAKES_FROM = 1 << 12,
	STAT_TAKES_WATCH = 1 << 13,
	STAT_TAKES_COUNT = 1 << 14,
	STAT_TAKES_REPEAT = STAT_TAKES_WATCH | STAT_TAKES_COUNT,
	STAT_TAKES_WORDS = 1 << 15, /* behind the process id */
	STAT_TAKES_TO = 1 << 16,
	STAT_TAKES_LISTEN = 1 << 17,
	STAT_TAKES_OUTPUT = 1 << 18,
	STAT_HAS_NO_JSON = 1 << 19, /* what it prints has a form of its own */
	STAT_TAKES_CHECK = 1 << 20,
	STAT_TAKES_ASCII = 1 << 24,
	STAT_TAKES_NO_COLOR = 1 << 25,
	STAT_TAKES_CHANGES = 1 << 27,
	STAT_TAKES_QUERY = 1 << 28,
	STAT_TAKES_LEVELS = 1 << 29,
	STAT_TAKES_LOOK = STAT_TAKES_ASCII | STAT_TAKES_NO_COLOR,
	STAT_TAKES_SAVED = 1 << 30, /* a file instead of process ids */
	STAT_TAKES_VERB = 1 << 26, /* words behind the process id, or before it; the id may be missing */
};

struct stat_command {
	const char *name;
	const char *synopsis;
	const char *help; /* one line */
	size_t max_pids;
	unsigned takes;
	enum stat_exit (*run)(
		const struct stat_command *command, const struct stat_options *options);
	void (*show)(const struct stat_process *process, const struct stat_options *options);
	size_t max_bytes; /* of an answer */
	const char *once; /* why --watch is refused, whatever the words; NULL: run() repeats it */
};

/* STAT_TAKES_*, all that there are. */
unsigned stat_command_takes(const struct stat_command *command);

/*
 * Of what is done once, because of that word of the command's unless it is NULL: true if it is not to be repeated;
 * false after a message that says why.
 */
bool stat_command_check_once(
	const struct stat_command *command, const struct stat_options *options, const char *word, const char *why);

/* What a command asks, of the processes that were named. */
struct stat_question stat_command_question(
	const struct stat_command *command, const struct stat_options *options, const char *request);

/* Asks each process once and prints what it says. */
enum stat_exit stat_command_read(const struct stat_command *command, const struct stat_options *options);

/* Each answer on its screen, below a title that tells whose it is. */
void stat_command_show(const struct stat_survey *survey, const struct stat_command *command,
	const struct stat_options *options);

/* Why they are done once. */
#define STAT_CHANGE_IS_ONCE "it changes a process"
#define STAT_FILE_IS_ONCE   "it asks no process"

/* Ends with a row without a name; the first is the default. */
extern const struct stat_command stat_commands[];
