/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* A command of gpupool-stat, and what commands have in common. stat_commands.h has the list of them. */

#include "stat_options.h"
#include "stat_survey.h"

/*
 * The options of a command. Every command also takes --help and --timeout, and --json unless it has STAT_HAS_NO_JSON.
 * Commands that can be repeated, those with once == NULL, also take --watch and --count.
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
	STAT_TAKES_WORDS = 1 << 15, /* after the process id */
	STAT_TAKES_TO = 1 << 16,
	STAT_TAKES_LISTEN = 1 << 17,
	STAT_TAKES_OUTPUT = 1 << 18,
	STAT_HAS_NO_JSON = 1 << 19, /* the command has another output format */
	STAT_TAKES_CHECK = 1 << 20,
	STAT_TAKES_ASCII = 1 << 24,
	STAT_TAKES_NO_COLOR = 1 << 25,
	STAT_TAKES_CHANGES = 1 << 27,
	STAT_TAKES_QUERY = 1 << 28,
	STAT_TAKES_LEVELS = 1 << 29,
	STAT_TAKES_LOOK = STAT_TAKES_ASCII | STAT_TAKES_NO_COLOR,
	STAT_TAKES_SAVED = 1 << 30, /* a file instead of process ids */
	STAT_TAKES_VERB = 1 << 26,  /* words after the process id, or before it; the id may be missing */
};

struct stat_command {
	const char *name;
	const char *synopsis;
	const char *help; /* one line */
	size_t max_pids;
	unsigned takes;
	enum stat_exit (*run)(const struct stat_command *command, const struct stat_options *options);
	void (*show)(const struct stat_process *process, const struct stat_options *options);
	size_t max_bytes;   /* the longest answer */
	const char *once;   /* why --watch is always refused; NULL: run() repeats the command */
	bool has_own_title; /* show() prints a title with the process itself */
};

/* Returns all the options that a command takes, as STAT_TAKES_*. */
unsigned stat_command_takes(const struct stat_command *command);

/*
 * Checks that --watch and --count are absent, for a command that is done once, for the reason why. word: the word that
 * makes the command so, or NULL. Returns false after a message with the reason.
 */
bool stat_command_check_once(
	const struct stat_command *command, const struct stat_options *options, const char *word, const char *why);

/* Returns the question with this request to the processes that the user named. */
struct stat_question stat_command_question(
	const struct stat_command *command, const struct stat_options *options, const char *request);

/* Sends a request to each process, and prints the answers. */
enum stat_exit stat_command_ask(
	const struct stat_command *command, const struct stat_options *options, const char *request);

/* The same with the name of the command as the request. */
enum stat_exit stat_command_read(const struct stat_command *command, const struct stat_options *options);

/* Prints each answer with the command's show(), below a title with its process if there are several. */
void stat_command_show(
	const struct stat_survey *survey, const struct stat_command *command, const struct stat_options *options);

/* Reasons why a command is done once, as sentences of a message. */
#define STAT_CHANGE_IS_ONCE "it changes a process"
#define STAT_FILE_IS_ONCE   "it reads a file, which does not change"
