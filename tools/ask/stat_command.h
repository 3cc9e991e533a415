/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* A command of gpupool-stat, and what commands have in common. stat_commands.h has the list of them. */

#include "stat_options.h"
#include "stat_survey.h"

/* The words that may follow the name of a command, apart from options. */
enum stat_operands {
	STAT_OPERAND_PIDS,      /* up to max_pids process ids */
	STAT_OPERAND_FILE,      /* one file or, if the synopsis says so, a process id that the command parses itself */
	STAT_OPERAND_FILES,     /* the same, or several files */
	STAT_OPERAND_PIDS_FILE, /* process ids, or one file */
	STAT_OPERAND_PID_WORDS, /* a process id, and up to STAT_WORDS_MAX words */
	STAT_OPERAND_COMMAND,   /* the name of a command, or nothing */
	STAT_OPERAND_VERB,      /* words, and before or after them a process id, which may be missing */
};

struct stat_command {
	const char *name;
	const char *synopsis;
	const char *help; /* one line */
	enum stat_operands operands;
	size_t max_pids;
	uint64_t takes; /* STAT_TAKES_* beside those that stat_command_takes() adds */
	bool has_no_json;
	enum stat_exit (*run)(const struct stat_command *command, const struct stat_options *options);
	void (*show)(const struct stat_process *process, const struct stat_options *options);
	/* Adds to an answer before it is printed as JSON; or NULL. */
	void (*complete)(const struct stat_process *process);
	bool has_own_title; /* show() prints a title with the process itself */
	size_t max_bytes;   /* the longest answer */
	const char *once;   /* why --watch is always refused; NULL: run() repeats the command */
};

/*
 * Returns all the options that a command takes. Every command takes --help, --timeout and --version, and --json unless
 * it has_no_json. Commands that can be repeated, those with once == NULL, also take --watch and --count.
 */
uint64_t stat_command_takes(const struct stat_command *command);

/*
 * Checks that neither --watch nor --count is given to a command that runs once. why: the reason that it runs once.
 * word: the word or option that is the cause, such as "set" after limit, or NULL. Returns false after a message.
 */
bool stat_command_check_once(
	const struct stat_command *command, const struct stat_options *options, const char *word, const char *why);

/* Returns the question that sends this request to the processes that the user named. */
struct stat_question stat_command_question(
	const struct stat_command *command, const struct stat_options *options, const char *request);

/* Sends a request to each process, and prints the answers. */
enum stat_exit stat_command_ask(
	const struct stat_command *command, const struct stat_options *options, const char *request);

/* The same with the name of the command as the request. */
enum stat_exit stat_command_read(const struct stat_command *command, const struct stat_options *options);

/* Prints the answers as stat_report_json() does, after the command's complete() has added to them. */
void stat_command_print_json(
	const struct stat_survey *survey, const struct stat_command *command, const struct stat_options *options);

/* Prints each answer with the command's show(), below a title with its process if there are several. */
void stat_command_show(
	const struct stat_survey *survey, const struct stat_command *command, const struct stat_options *options);

/* Reasons why a command runs once, as sentences of a message. */
#define STAT_CHANGE_IS_ONCE "it changes a process"
#define STAT_FILE_IS_ONCE   "it reads a file, which does not change"
