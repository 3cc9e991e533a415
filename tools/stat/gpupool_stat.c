/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* gpupool-stat inspects running processes. This file parses the command line and runs the command. */

#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "tools/text/stat_number.h"
#include "tools/text/stat_say.h"
#include "stat_check.h"
#include "stat_commands.h"
#include "stat_help.h"
#include "stat_option.h"

enum { DEFAULT_TIMEOUT_MS = 2000 };

/* The command line as typed. Options may come before the command, so check_fit() compares them with it at the end. */
struct words {
	struct stat_options options;
	size_t n_files, n_words;
	uint64_t taken; /* the options that were given, as STAT_TAKES_* */
	const char *name;
	pid_t *pids;
};

static const char next_help[] = "gpupool-stat --help";

static void refuse_unknown(const char *word)
{
	const char *nearest = stat_option_nearest(word);

	if (nearest)
		stat_error(next_help, "there is no option '%s'; did you mean '--%s'?", word, nearest);
	else
		stat_error(next_help, "there is no option '%s'.", word);
}

static bool refuse_option(int kind, const char *word)
{
	if (kind == ':')
		stat_error(next_help, "option '%s' needs a value.", word);
	else if (strncmp(word, "--", 2) != 0)
		stat_error(next_help, "there is no option '-%c'.", optopt);
	else if (optopt)
		stat_error(next_help, "option '%s' takes no value.", word);
	else
		refuse_unknown(word);
	return false;
}

/* Returns a command, or the one without a name, with the default operands, if there is no such command. */
static const struct stat_command *command_of(const char *name)
{
	const struct stat_command *command = stat_commands;

	while (command->name && !(name && strcmp(command->name, name) == 0))
		command++;
	return command;
}

static bool refuse_pid(const struct words *words, const char *text)
{
	const char *name = command_of(words->name)->name;
	char next[64];

	snprintf(next, sizeof(next), "gpupool-stat %s --help", name ? name : "");
	if (name)
		stat_error(next, "'%s' is not a process id.", text);
	else
		stat_error(next_help, "'%s' is neither a command nor a process id.", text);
	return false;
}

static bool take_pids(struct words *words, char **texts, size_t n)
{
	words->pids = stat_alloc(calloc(n + 1, sizeof(*words->pids)));
	for (size_t i = 0; i < n; i++) {
		uint64_t number;
		bool is_new = true;

		if (!stat_number_parse(texts[i], INT_MAX, &number) || !number)
			return refuse_pid(words, texts[i]);
		for (size_t k = 0; k < words->options.n_pids; k++)
			is_new = is_new && words->pids[k] != (pid_t)number;
		if (is_new)
			words->pids[words->options.n_pids++] = (pid_t)number;
	}
	words->options.pids = words->pids;
	return true;
}

/* Keeps the words that are not process ids, at most STAT_WORDS_MAX of them; n_words counts all. */
static void take_words(struct words *words, char **texts, size_t n)
{
	words->n_words = n;
	for (; words->options.n_words < n && words->options.n_words < STAT_WORDS_MAX; words->options.n_words++)
		words->options.words[words->options.n_words] = texts[words->options.n_words];
}

static bool is_number(const char *text)
{
	return *text && text[strspn(text, "0123456789")] == '\0';
}

/* The process id is the first word, or it follows the verb and the argument of the verb. */
static bool take_verb(struct words *words, char **texts, size_t n)
{
	bool is_first = n && is_number(texts[0]);
	bool takes_one = n && (strcmp(texts[0], "set") == 0 || strcmp(texts[0], "invalidate") == 0);
	size_t n_words = takes_one ? 2 : 1;

	if (is_first) {
		take_words(words, texts + 1, n - 1);
		return take_pids(words, texts, 1);
	}
	take_words(words, texts, n < n_words ? n : n_words);
	return take_pids(words, texts + words->n_words, n - words->n_words);
}

static bool take_options(struct words *words, int argc, char **argv)
{
	struct stat_getopt getopt;
	int key, option;

	stat_option_fill(&getopt);
	opterr = 0;
	for (;;) {
		int at = optind ? optind : 1;

		key = getopt_long(argc, argv, getopt.letters, getopt.longs, NULL);
		if (key < 0)
			return true;
		option = stat_option_of(key);
		if (option < 0)
			return refuse_option(key, argv[optind > at ? optind - 1 : at]);
		if (!stat_option_take(&words->options, option, optarg))
			return false;
		words->taken |= UINT64_C(1) << option;
	}
}

static bool take_operands(struct words *words, char **texts, size_t n)
{
	enum stat_operands operands = command_of(words->name)->operands;

	if (operands == STAT_OPERAND_FILE || operands == STAT_OPERAND_FILES ||
		(operands == STAT_OPERAND_PIDS_FILE && n && !is_number(texts[0]))) {
		words->n_files = n;
		words->options.files = texts;
		words->options.n_files = n;
		words->options.file = texts[0];
		return true;
	}
	if (operands == STAT_OPERAND_COMMAND) {
		take_words(words, texts, n);
		return true;
	}
	if (operands == STAT_OPERAND_VERB)
		return take_verb(words, texts, n);
	if (operands == STAT_OPERAND_PID_WORDS && n) {
		take_words(words, texts + 1, n - 1);
		return take_pids(words, texts, 1);
	}
	return take_pids(words, texts, n);
}

static bool parse(struct words *words, int argc, char **argv)
{
	if (!take_options(words, argc, argv))
		return false;
	if (optind < argc && (argv[optind][0] < '0' || argv[optind][0] > '9'))
		words->name = argv[optind++];
	return take_operands(words, argv + optind, (size_t)(argc - optind));
}

static bool check_options(const struct stat_command *command, const struct words *words, const char *next)
{
	uint64_t wrong = words->taken & ~stat_command_takes(command);
	char name[STAT_OPTION_NAME_MAX];

	for (int i = 0; i < STAT_N_OPTIONS; i++) {
		if (!(wrong >> i & 1))
			continue;
		stat_option_name(name, i);
		stat_error(next, "%s does not take %s.", command->name, name);
		return false;
	}
	return true;
}

static bool check_operands(const struct stat_command *command, const struct words *words, const char *next)
{
	if (command->operands == STAT_OPERAND_FILE && words->n_files != 1) {
		stat_error(next, "%s takes one %s.", command->name,
			strchr(command->synopsis, '|') ? "file or process id" : "file");
		return false;
	}
	if (command->operands == STAT_OPERAND_FILES && !words->n_files) {
		stat_error(next, "%s takes files, or one process id.", command->name);
		return false;
	}
	if (command->operands == STAT_OPERAND_PIDS_FILE && words->n_files > 1) {
		stat_error(next, "%s takes process ids, or one file.", command->name);
		return false;
	}
	if (command->operands == STAT_OPERAND_COMMAND && words->n_words > 1) {
		stat_error(next, "%s takes the name of one command.", command->name);
		return false;
	}
	if (command->operands == STAT_OPERAND_PID_WORDS &&
		(!words->options.n_pids || words->n_words > STAT_WORDS_MAX)) {
		stat_error(next, "%s takes %s.", command->name, command->synopsis);
		return false;
	}
	if (words->options.n_pids <= command->max_pids)
		return true;
	stat_error(next, "%s takes %s.", command->name, command->max_pids ? "one process id" : "no process ids");
	return false;
}

static bool check_fit(const struct stat_command *command, const struct words *words)
{
	char next[64];

	if (command->once && !stat_command_check_once(command, &words->options, NULL, command->once))
		return false;
	snprintf(next, sizeof(next), "gpupool-stat %s --help", command->name);
	return check_options(command, words, next) && check_operands(command, words, next);
}

static enum stat_exit run(struct words *words)
{
	const struct stat_command *command;

	if (words->options.wants_version) {
		puts("gpupool-stat " GPUPOOL_VERSION);
		return STAT_OK;
	}
	if (words->options.wants_help && !words->name) {
		stat_help();
		return STAT_OK;
	}
	command = stat_commands_find(words->name);
	if (!command)
		return STAT_USAGE;
	words->options.is_overview = !words->name && !words->options.n_pids;
	if (words->options.wants_help) {
		stat_help_command(command);
		return STAT_OK;
	}
	if (!check_fit(command, words))
		return STAT_USAGE;
	return command->run(command, &words->options);
}

/*
 * True if the command is check, whose exit codes are always those of monitoring systems. If a wrong option ended the
 * parsing before the command was found, any argument "check" counts.
 */
static bool is_check(const struct words *words, int argc, char **argv)
{
	if (words->name)
		return strcmp(words->name, "check") == 0;
	for (int i = 1; i < argc; i++)
		if (strcmp(argv[i], "check") == 0)
			return true;
	return false;
}

/* Raises the limit of open files: root may have thousands of processes to ask. */
static void raise_descriptors(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
		limit.rlim_cur = limit.rlim_max;
		(void)setrlimit(RLIMIT_NOFILE, &limit);
	}
}

int main(int argc, char **argv)
{
	struct words words = {
		.options = {.timeout_ms = DEFAULT_TIMEOUT_MS, .max_blocks = UINT64_MAX},
	};
	enum stat_exit result;

	raise_descriptors();
	signal(SIGXFSZ, SIG_IGN); /* a write beyond the limit of a file's size fails instead, and is reported */
	setlocale(LC_CTYPE, "");  /* only the character set; numbers and dates are the same in every locale */
	result = parse(&words, argc, argv) ? run(&words) : STAT_USAGE;
	free(words.pids);
	if ((fflush(stdout) != 0 || ferror(stdout)) && (result == STAT_OK || (int)result == STAT_CHECK_OK)) {
		stat_error(NULL, "cannot write: %s.", strerror(errno));
		result = STAT_FAILED;
	}
	return is_check(&words, argc, argv) ? stat_check_exit(result) : (int)result;
}
