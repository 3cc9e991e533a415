/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* gpupool-stat inspects running processes. This file parses the command line and runs the command. */

#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <locale.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "tools/text/stat_number.h"
#include "tools/text/stat_say.h"
#include "stat_check.h"
#include "stat_help.h"
#include "stat_parse.h"

enum {
	OPTION_JSON = 256,
	OPTION_TIMEOUT,
	OPTION_DEVICE,
	OPTION_PINNED,
	OPTION_POOL,
	OPTION_LIMIT,
	OPTION_REUSE,
	OPTION_BY,
	OPTION_MIN,
	OPTION_OLDER,
	OPTION_DIFF,
	OPTION_FROM,
	OPTION_WATCH,
	OPTION_COUNT,
	OPTION_TO,
	OPTION_LISTEN,
	OPTION_ASCII,
	OPTION_NO_COLOR,
	OPTION_CHANGES,
	OPTION_QUERY,
	OPTION_FORMAT,
	OPTION_WARN,
	OPTION_CRIT,
	OPTION_CHECK,
	OPTION_VERSION,
	DEFAULT_TIMEOUT_MS = 2000,
};

/* The command line as typed. Options may come before the command, so check_fit() compares them with it at the end. */
struct words {
	struct stat_options options;
	size_t n_files, n_words;
	unsigned taken; /* STAT_TAKES_* of the options that were given */
	bool wants_help, wants_version;
	const char *name;
	pid_t *pids;
};

static const struct option long_options[] = {
	{"json", no_argument, NULL, OPTION_JSON},
	{"timeout", required_argument, NULL, OPTION_TIMEOUT},
	{"quiet", no_argument, NULL, 'q'},
	{"max", required_argument, NULL, 'n'},
	{"device", required_argument, NULL, OPTION_DEVICE},
	{"pinned", no_argument, NULL, OPTION_PINNED},
	{"pool", required_argument, NULL, OPTION_POOL},
	{"limit", required_argument, NULL, OPTION_LIMIT},
	{"reuse", required_argument, NULL, OPTION_REUSE},
	{"by", required_argument, NULL, OPTION_BY},
	{"min", required_argument, NULL, OPTION_MIN},
	{"older", required_argument, NULL, OPTION_OLDER},
	{"diff", required_argument, NULL, OPTION_DIFF},
	{"from", required_argument, NULL, OPTION_FROM},
	{"watch", required_argument, NULL, OPTION_WATCH},
	{"count", required_argument, NULL, OPTION_COUNT},
	{"to", required_argument, NULL, OPTION_TO},
	{"listen", required_argument, NULL, OPTION_LISTEN},
	{"ascii", no_argument, NULL, OPTION_ASCII},
	{"no-color", no_argument, NULL, OPTION_NO_COLOR},
	{"output", required_argument, NULL, 'o'},
	{"allow-changes", no_argument, NULL, OPTION_CHANGES},
	{"query", required_argument, NULL, OPTION_QUERY},
	{"format", required_argument, NULL, OPTION_FORMAT},
	{"warn", required_argument, NULL, OPTION_WARN},
	{"crit", required_argument, NULL, OPTION_CRIT},
	{"check", no_argument, NULL, OPTION_CHECK},
	{"help", no_argument, NULL, 'h'},
	{"version", no_argument, NULL, OPTION_VERSION},
	{NULL, 0, NULL, 0},
};

static const char next_help[] = "gpupool-stat --help";

static bool refuse_option(int kind, const char *word)
{
	if (kind == ':')
		stat_error(next_help, "option '%s' needs a value.", word);
	else if (strncmp(word, "--", 2) != 0)
		stat_error(next_help, "there is no option '-%c'.", optopt);
	else if (optopt)
		stat_error(next_help, "option '%s' takes no value.", word);
	else
		stat_error(next_help, "there is no option '%s'.", word);
	return false;
}

/* Options with a value: the STAT_TAKES_* that a command needs for it, and its parser. NULL: the text is stored. */
static const struct {
	int option;
	unsigned taken;
	bool (*parse)(struct stat_options *options, const char *text);
	size_t text_at;
} valued[] = {
	{OPTION_TIMEOUT, 0, stat_parse_timeout, 0},
	{'n', STAT_TAKES_MAX, stat_parse_max, 0},
	{OPTION_DEVICE, STAT_TAKES_DEVICE, stat_parse_device, 0},
	{OPTION_BY, STAT_TAKES_BY, stat_parse_by, 0},
	{OPTION_MIN, STAT_TAKES_MIN, stat_parse_min, 0},
	{OPTION_OLDER, STAT_TAKES_OLDER, stat_parse_older, 0},
	{OPTION_WATCH, STAT_TAKES_WATCH, stat_parse_watch, 0},
	{OPTION_COUNT, STAT_TAKES_COUNT, stat_parse_count, 0},
	{OPTION_DIFF, STAT_TAKES_DIFF, NULL, offsetof(struct stat_options, diff)},
	{OPTION_FROM, STAT_TAKES_FROM, NULL, offsetof(struct stat_options, from)},
	{OPTION_TO, STAT_TAKES_TO, NULL, offsetof(struct stat_options, to)},
	{'o', STAT_TAKES_OUTPUT, NULL, offsetof(struct stat_options, output)},
	{OPTION_LISTEN, STAT_TAKES_LISTEN, NULL, offsetof(struct stat_options, listen)},
	{OPTION_QUERY, STAT_TAKES_QUERY, NULL, offsetof(struct stat_options, query)},
	{OPTION_FORMAT, STAT_TAKES_QUERY, NULL, offsetof(struct stat_options, format)},
	{OPTION_WARN, STAT_TAKES_LEVELS, NULL, offsetof(struct stat_options, warn)},
	{OPTION_CRIT, STAT_TAKES_LEVELS, NULL, offsetof(struct stat_options, crit)},
	{OPTION_POOL, STAT_TAKES_POOL, NULL, offsetof(struct stat_options, pool)},
	{OPTION_LIMIT, STAT_TAKES_LIMIT, NULL, offsetof(struct stat_options, limit)},
	{OPTION_REUSE, STAT_TAKES_REUSE, NULL, offsetof(struct stat_options, reuse)},
};

static bool take_value(struct words *words, int option, const char *word)
{
	for (size_t i = 0; i < sizeof(valued) / sizeof(valued[0]); i++) {
		if (valued[i].option != option)
			continue;
		words->taken |= valued[i].taken;
		if (valued[i].parse)
			return valued[i].parse(&words->options, optarg);
		*(const char **)((char *)&words->options + valued[i].text_at) = optarg;
		return true;
	}
	return refuse_option(option, word);
}

/* Options without a value. */
static const struct {
	int option;
	unsigned taken;
	size_t flag_at;
} switches[] = {
	{OPTION_JSON, 0, offsetof(struct words, options.is_json)},
	{'q', STAT_TAKES_QUIET, offsetof(struct words, options.is_quiet)},
	{OPTION_CHECK, STAT_TAKES_CHECK, offsetof(struct words, options.is_check)},
	{OPTION_PINNED, STAT_TAKES_PINNED, offsetof(struct words, options.is_pinned)},
	{OPTION_ASCII, STAT_TAKES_ASCII, offsetof(struct words, options.is_ascii)},
	{OPTION_NO_COLOR, STAT_TAKES_NO_COLOR, offsetof(struct words, options.has_no_color)},
	{OPTION_CHANGES, STAT_TAKES_CHANGES, offsetof(struct words, options.may_change)},
	{'h', 0, offsetof(struct words, wants_help)},
	{OPTION_VERSION, 0, offsetof(struct words, wants_version)},
};

static bool take_option(struct words *words, int option, const char *word)
{
	for (size_t i = 0; i < sizeof(switches) / sizeof(switches[0]); i++) {
		if (switches[i].option != option)
			continue;
		words->taken |= switches[i].taken;
		*(bool *)((char *)words + switches[i].flag_at) = true;
		return true;
	}
	return take_value(words, option, word);
}

static bool take_pids(struct words *words, char **texts, size_t n)
{
	words->pids = stat_alloc(calloc(n + 1, sizeof(*words->pids)));
	for (size_t i = 0; i < n; i++) {
		uint64_t number;
		bool is_new = true;

		if (!stat_number_parse(texts[i], INT_MAX, &number) || !number) {
			stat_error(next_help, "'%s' is neither a command nor a process id.", texts[i]);
			return false;
		}
		for (size_t k = 0; k < words->options.n_pids; k++)
			is_new = is_new && words->pids[k] != (pid_t)number;
		if (is_new)
			words->pids[words->options.n_pids++] = (pid_t)number;
	}
	words->options.pids = words->pids;
	return true;
}

/* Returns the STAT_TAKES_* bit for the words behind a command, or 0 if they are process ids. */
static unsigned takes_of(const char *name)
{
	const struct stat_command *command = stat_commands;

	while (command->name && !(name && strcmp(command->name, name) == 0))
		command++;
	return command->takes & (STAT_TAKES_FILE | STAT_TAKES_WORDS | STAT_TAKES_VERB | STAT_TAKES_SAVED);
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

static bool parse(struct words *words, int argc, char **argv)
{
	int option, first;

	opterr = 0;
	for (;;) {
		int at = optind ? optind : 1;

		option = getopt_long(argc, argv, ":qn:o:h", long_options, NULL);
		if (option < 0)
			break;
		if (!take_option(words, option, argv[optind > at ? optind - 1 : at]))
			return false;
	}
	first = optind;
	if (first < argc && (argv[first][0] < '0' || argv[first][0] > '9'))
		words->name = argv[first++];
	if (takes_of(words->name) == STAT_TAKES_FILE ||
		(takes_of(words->name) == STAT_TAKES_SAVED && first < argc && !is_number(argv[first]))) {
		words->n_files = (size_t)(argc - first);
		words->options.file = argv[first];
		return true;
	}
	if (takes_of(words->name) == STAT_TAKES_VERB)
		return take_verb(words, argv + first, (size_t)(argc - first));
	if (takes_of(words->name) == STAT_TAKES_WORDS && first < argc) {
		take_words(words, argv + first + 1, (size_t)(argc - first - 1));
		return take_pids(words, argv + first, 1);
	}
	return take_pids(words, argv + first, (size_t)(argc - first));
}

static const struct stat_command *find_command(const char *name)
{
	const struct stat_command *command = stat_commands;

	if (!name)
		return command;
	while (command->name && strcmp(command->name, name) != 0)
		command++;
	if (command->name)
		return command;
	stat_error(next_help, "there is no command '%s'.", name);
	return NULL;
}

static bool check_fit(const struct stat_command *command, const struct words *words)
{
	char next[64];

	if (command->once && !stat_command_check_once(command, &words->options, NULL, command->once))
		return false;
	snprintf(next, sizeof(next), "gpupool-stat %s --help", command->name);
	for (const struct stat_option *o = stat_help_options; o->name; o++) {
		if (!(words->taken & ~stat_command_takes(command) & o->taken))
			continue;
		stat_error(next, "%s does not take %s.", command->name, o->name);
		return false;
	}
	if (command->takes & STAT_HAS_NO_JSON && words->options.is_json) {
		stat_error(next, "%s does not take --json.", command->name);
		return false;
	}
	if (command->takes & STAT_TAKES_FILE && words->n_files != 1) {
		stat_error(next, "%s takes one %s.", command->name,
			strchr(command->synopsis, '|') ? "file or process id" : "file");
		return false;
	}
	if (command->takes & STAT_TAKES_SAVED && words->n_files > 1) {
		stat_error(next, "%s takes process ids, or one file.", command->name);
		return false;
	}
	if (command->takes & STAT_TAKES_WORDS && (!words->options.n_pids || words->n_words > STAT_WORDS_MAX)) {
		stat_error(next, "%s takes %s.", command->name, command->synopsis);
		return false;
	}
	if (words->options.n_pids <= command->max_pids)
		return true;
	stat_error(next, "%s takes %s.", command->name, command->max_pids ? "one process id" : "no process ids");
	return false;
}

static enum stat_exit run(struct words *words)
{
	const struct stat_command *command;

	if (words->wants_version) {
		puts("gpupool-stat " GPUPOOL_VERSION);
		return STAT_OK;
	}
	if (words->wants_help && !words->name) {
		stat_help();
		return STAT_OK;
	}
	command = find_command(words->name);
	if (!command)
		return STAT_USAGE;
	if (words->wants_help) {
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
