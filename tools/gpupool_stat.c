/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* gpupool-stat looks into running processes: words and options to a command, and its exit code. */

#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "stat_command.h"

enum {
	OPTION_JSON = 256,
	OPTION_TIMEOUT,
	OPTION_DEVICE,
	OPTION_PINNED,
	OPTION_POOL,
	OPTION_LIMIT,
	OPTION_REUSE,
	OPTION_VERSION,
	DEFAULT_TIMEOUT_MS = 2000,
};

/* As typed; which command it belongs to is known at the end. */
struct words {
	struct stat_options options;
	size_t n_files;
	unsigned taken; /* STAT_TAKES_* */
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
	{"help", no_argument, NULL, 'h'},
	{"version", no_argument, NULL, OPTION_VERSION},
	{NULL, 0, NULL, 0},
};

static const struct {
	unsigned taken;
	const char *name, *text;
} command_options[] = {
	{STAT_TAKES_QUIET, "-q", "-q, --quiet      only the process ids"},
	{STAT_TAKES_MAX, "-n", "-n, --max=MAX    at most so many blocks"},
	{STAT_TAKES_DEVICE, "--device", "--device=N       only of contexts on this device"},
	{STAT_TAKES_PINNED, "--pinned",
		"--pinned         pinned host memory instead of device memory"},
	{STAT_TAKES_POOL, "--pool", "--pool=KIND      none, simple, binned or split; default: each of them"},
	{STAT_TAKES_LIMIT, "--limit", "--limit=SIZE     of each device; default: as it was"},
	{STAT_TAKES_REUSE, "--reuse", "--reuse=MODE     ordered, completed or auto; default: auto, as it was"},
};

#define N_COMMAND_OPTIONS (sizeof(command_options) / sizeof(command_options[0]))

static const char next_help[] = "gpupool-stat --help";

static void print_common_help(void)
{
	puts("  --json           one JSON object instead of text\n"
	     "  --timeout=SEC    how long to wait for answers (default: 2)\n"
	     "  -h, --help       this text");
}

static void print_help(void)
{
	puts("usage: gpupool-stat [COMMAND] [options] [PID...]\n"
	     "\n"
	     "Looks into programs that run with gpupool.\n");
	for (const struct stat_command *c = stat_commands; c->name; c++)
		printf("  %-8s %-9s %s%s\n", c->name, c->synopsis, c->help,
			c == stat_commands ? " (default)" : "");
	puts("\nWithout a PID: all processes of yours, as root those of all users; reclaim wants\n"
	     "there to be only one.\n");
	print_common_help();
	puts("  --version        the version\n"
	     "\n"
	     "gpupool-stat COMMAND --help lists the options of a command. See gpupool-stat(1).");
}

static void print_command_help(const struct stat_command *command)
{
	printf("usage: gpupool-stat %s [options]%s%s\n\n%c%s.\n\n", command->name,
		*command->synopsis ? " " : "", command->synopsis, toupper(command->help[0]),
		command->help + 1);
	for (size_t i = 0; i < N_COMMAND_OPTIONS; i++)
		if (command->takes & command_options[i].taken)
			printf("  %s\n", command_options[i].text);
	print_common_help();
}

/* A whole number without a sign, at most max. */
static bool parse_number(const char *text, uint64_t max, uint64_t *ret_value)
{
	unsigned long long value;
	char *end;

	if (text[0] < '0' || text[0] > '9')
		return false;
	errno = 0;
	value = strtoull(text, &end, 10);
	if (errno || *end || value > max)
		return false;
	*ret_value = value;
	return true;
}

static bool take_timeout(struct stat_options *options, const char *text)
{
	char *end;
	double seconds = strtod(text, &end);

	if (end == text || *end || !(seconds >= 0.001 && seconds <= 86400)) {
		stat_error(
			"as in: --timeout=0.5", "--timeout: '%s' is no number of seconds.", text);
		return false;
	}
	options->timeout_ms = (int)(seconds * 1000 + 0.5);
	return true;
}

static bool take_max(struct stat_options *options, const char *text)
{
	if (parse_number(text, UINT64_MAX - 1, &options->max_blocks))
		return true;
	stat_error("as in: -n 20", "-n: '%s' is no number of blocks.", text);
	return false;
}

static bool take_device(struct stat_options *options, const char *text)
{
	uint64_t number;

	options->device = text;
	if (strlen(text) <= 4 && parse_number(text, INT_MAX, &number))
		return true;
	stat_error("as in: --device=0", "--device: '%s' is no number of a device.", text);
	return false;
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
		stat_error(next_help, "there is no option '%s'.", word);
	return false;
}

static bool take_option(struct words *words, int option, const char *word)
{
	switch (option) {
	case OPTION_JSON:
		words->options.is_json = true;
		return true;
	case OPTION_TIMEOUT:
		return take_timeout(&words->options, optarg);
	case 'q':
		words->options.is_quiet = true;
		words->taken |= STAT_TAKES_QUIET;
		return true;
	case 'n':
		words->taken |= STAT_TAKES_MAX;
		return take_max(&words->options, optarg);
	case OPTION_DEVICE:
		words->taken |= STAT_TAKES_DEVICE;
		return take_device(&words->options, optarg);
	case OPTION_PINNED:
		words->options.is_pinned = true;
		words->taken |= STAT_TAKES_PINNED;
		return true;
	case 'h':
		words->wants_help = true;
		return true;
	case OPTION_VERSION:
		words->wants_version = true;
		return true;
	case OPTION_POOL:
		words->options.pool = optarg;
		words->taken |= STAT_TAKES_POOL;
		return true;
	case OPTION_LIMIT:
		words->options.limit = optarg;
		words->taken |= STAT_TAKES_LIMIT;
		return true;
	case OPTION_REUSE:
		words->options.reuse = optarg;
		words->taken |= STAT_TAKES_REUSE;
		return true;
	default:
		return refuse_option(option, word);
	}
}

static bool take_pids(struct words *words, char **texts, size_t n)
{
	words->pids = stat_alloc(calloc(n + 1, sizeof(*words->pids)));
	for (size_t i = 0; i < n; i++) {
		uint64_t number;
		bool is_new = true;

		if (!parse_number(texts[i], INT_MAX, &number) || !number) {
			stat_error(
				next_help, "'%s' is neither a command nor a process id.", texts[i]);
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

/* Whether what follows are no process ids. */
static bool is_for_files(const char *name)
{
	const struct stat_command *command = stat_commands;

	while (command->name && !(name && strcmp(command->name, name) == 0))
		command++;
	return command->takes & STAT_TAKES_FILE;
}

static bool parse(struct words *words, int argc, char **argv)
{
	int option, first;

	opterr = 0;
	for (;;) {
		int at = optind ? optind : 1;

		option = getopt_long(argc, argv, ":qn:h", long_options, NULL);
		if (option < 0)
			break;
		if (!take_option(words, option, argv[optind > at ? optind - 1 : at]))
			return false;
	}
	first = optind;
	if (first < argc && (argv[first][0] < '0' || argv[first][0] > '9'))
		words->name = argv[first++];
	if (is_for_files(words->name)) {
		words->n_files = (size_t)(argc - first);
		words->options.file = argv[first];
		return true;
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

	snprintf(next, sizeof(next), "gpupool-stat %s --help", command->name);
	for (size_t i = 0; i < N_COMMAND_OPTIONS; i++) {
		if (!(words->taken & ~command->takes & command_options[i].taken))
			continue;
		stat_error(next, "%s does not take %s.", command->name, command_options[i].name);
		return false;
	}
	if (command->takes & STAT_TAKES_FILE && words->n_files != 1) {
		stat_error(next, "%s takes one file.", command->name);
		return false;
	}
	if (words->options.n_pids <= command->max_pids)
		return true;
	stat_error(next, "%s takes %s.", command->name,
		command->max_pids ? "one process id" : "no process ids");
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
		print_help();
		return STAT_OK;
	}
	command = find_command(words->name);
	if (!command)
		return STAT_USAGE;
	if (words->wants_help) {
		print_command_help(command);
		return STAT_OK;
	}
	if (!check_fit(command, words))
		return STAT_USAGE;
	return command->run(command, &words->options);
}

int main(int argc, char **argv)
{
	struct words words = {
		.options = {.timeout_ms = DEFAULT_TIMEOUT_MS, .max_blocks = UINT64_MAX},
	};
	enum stat_exit result = parse(&words, argc, argv) ? run(&words) : STAT_USAGE;

	free(words.pids);
	if ((fflush(stdout) != 0 || ferror(stdout)) && result == STAT_OK) {
		stat_error(NULL, "cannot write: %s.", strerror(errno));
		result = STAT_FAILED;
	}
	return result;
}
