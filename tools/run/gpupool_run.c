/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * gpupool-run starts a program with libgpupool.so preloaded. It sets the environment and becomes the program, so that
 * process id, signals, terminal and exit code are the program's own. For a summary it has to outlive the program, so
 * then the program is its child, and it ends as the program ends (run_wait.c). Mistakes that the library could only log
 * while the program runs, such as a limit that is not a size, are errors here, before the program starts.
 */

#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/config.h"
#include "common/nearest.h"
#include "run_compare.h"
#include "run_doctor.h"
#include "run_pools.h"
#include "run_preload.h"
#include "run_probe.h"
#include "run_program.h"
#include "run_record.h"
#include "run_say.h"
#include "run_summary.h"
#include "run_wait.h"

#define INJECTION    "NVTX_INJECTION64_PATH"
#define ASAN_OPTIONS "ASAN_OPTIONS"

enum {
	/* Above every character; the options of config.def follow. */
	OPTION_COMPARE = 256,
	OPTION_DOCTOR,
	OPTION_LIBRARY,
	OPTION_PRINT_ENV,
	OPTION_SUMMARY,
	OPTION_VERSION,
	OPTION_TABLE,
};

struct request {
	const char *preload; /* the value of --library, or NULL */
	char *path;          /* of the library, once it has been found */
	bool is_doctor;
	bool print_env;
	bool is_done;   /* --help or --version was printed */
	bool has_asan;  /* the command needs the address sanitizer's library */
	char **command; /* NULL: none was given */
	enum { SUMMARY_AUTO, SUMMARY_OFF, SUMMARY_ON } summary;
	bool compares;
	struct run_compare compare;
};

static const struct option own_options[] = {
	{"compare", optional_argument, NULL, OPTION_COMPARE},
	{"doctor", no_argument, NULL, OPTION_DOCTOR},
	{"library", required_argument, NULL, OPTION_LIBRARY},
	{"print-env", no_argument, NULL, OPTION_PRINT_ENV},
	{"quiet", no_argument, NULL, 'q'},
	{"summary", optional_argument, NULL, OPTION_SUMMARY},
	{"help", no_argument, NULL, 'h'},
	{"version", no_argument, NULL, OPTION_VERSION},
};

#define OWN_OPTIONS (sizeof(own_options) / sizeof(*own_options))

/* True if the option may stand without a value, which means on. */
static bool is_switch(const struct gp_config_option *option)
{
	return option->type == GP_CONFIG_BOOL || option->type == GP_CONFIG_YIELD || option->type == GP_CONFIG_SLEEP ||
	       option->type == GP_CONFIG_STACKS;
}

static void fill_options(struct option options[static OWN_OPTIONS + GP_OPTION_COUNT + 1])
{
	memcpy(options, own_options, sizeof(own_options));
	for (int i = 0; i < GP_OPTION_COUNT; i++)
		options[OWN_OPTIONS + (size_t)i] = (struct option){
			.name = gp_config_options[i].option,
			.has_arg = is_switch(&gp_config_options[i]) ? optional_argument : required_argument,
			.val = OPTION_TABLE + i,
		};
	options[OWN_OPTIONS + GP_OPTION_COUNT] = (struct option){.name = NULL};
}

static void print_help(void)
{
	puts("usage: gpupool-run [options] [--] CMD [ARG...]\n"
	     "       gpupool-run [options] --compare[=TYPES] CMD [ARG...]\n"
	     "       gpupool-run [options] --print-env\n"
	     "       gpupool-run [options] --doctor [CMD]\n"
	     "\n"
	     "Starts CMD with its GPU memory taken from a pool.\n");
	for (int i = 0; i < GP_OPTION_COUNT; i++) {
		const struct gp_config_option *option = &gp_config_options[i];
		printf("  --%s%s%s%s\n        %s\n        (%s, default: %s)\n", option->option,
			is_switch(option) ? "[=" : "=", option->values, is_switch(option) ? "]" : "", option->help,
			option->variable, *option->default_text ? option->default_text : "not set");
	}
	puts("");
	run_pools_help();
	puts("\n"
	     "  --compare[=TYPES]\n"
	     "                   run CMD without gpupool and then with it, once for each pool type\n"
	     "                   in TYPES (as in split,vmm), and print a table\n"
	     "  --doctor         start nothing, and check what CMD needs: each line is good or\n"
	     "                   says what to do\n"
	     "  --library=PATH   the library to preload\n"
	     "  --print-env      print the environment as shell commands, and start nothing\n"
	     "  --summary[=on|off]\n"
	     "                   at the end of CMD, print what gpupool did for it (default: on if\n"
	     "                   stderr is a terminal); CMD is then a child of gpupool-run\n"
	     "  -q, --quiet      no warnings, and no summary unless --summary is given\n"
	     "  -h, --help       this text\n"
	     "  --version        the version\n"
	     "\n"
	     "See gpupool-run(1) and gpupool(7).");
}

static enum run_status set_option(enum gp_option option, const char *value)
{
	const struct gp_config_option *row = &gp_config_options[option];
	struct gp_text_error error;
	char name[64];

	if (!value)
		value = "on";
	if (gp_config_check(option, value, &error) < 0) {
		snprintf(name, sizeof(name), "--%s", row->option);
		run_mark(name, value, &error);
		return RUN_USAGE;
	}
	if (setenv(row->variable, value, 1) < 0) {
		run_error(NULL, "cannot set %s: %s.", row->variable, strerror(errno));
		return RUN_FAILED;
	}
	return RUN_OK;
}

/* Returns the long option that a mistyped word was probably meant to be, or NULL. */
static const char *nearest_option(const char *word)
{
	struct option options[OWN_OPTIONS + GP_OPTION_COUNT + 1];
	struct gp_nearest nearest;

	fill_options(options);
	gp_nearest_init_word(&nearest, word + strspn(word, "-"));
	for (size_t i = 0; options[i].name; i++)
		gp_nearest_try(&nearest, options[i].name);
	return nearest.name;
}

/*
 * Reports an option that getopt_long() refused. Within a group of single letters word may be another argument, so the
 * message names the letter.
 */
static enum run_status refuse_option(int kind, const char *word)
{
	static const char next[] = "gpupool-run --help lists the options; those of CMD follow CMD.";
	const char *nearest = nearest_option(word);

	if (kind == ':')
		run_error(next, "option '%s' needs a value.", word);
	else if (strncmp(word, "--", 2))
		run_error(next, "there is no option '-%c'.", optopt);
	else if (optopt)
		run_error(next, "option '%s' takes no value.", word);
	else if (nearest)
		run_error(next, "there is no option '%s'; did you mean '--%s'?", word, nearest);
	else
		run_error(next, "there is no option '%s'.", word);
	return RUN_USAGE;
}

static enum run_status set_summary(struct request *request, const char *value)
{
	const struct gp_text_error error = {.why = "is neither on nor off", .next = "use on or off"};

	if (!value || !strcmp(value, "on"))
		request->summary = SUMMARY_ON;
	else if (!strcmp(value, "off"))
		request->summary = SUMMARY_OFF;
	else {
		run_mark("--summary", value, &error);
		return RUN_USAGE;
	}
	return RUN_OK;
}

static enum run_status take_option(struct request *request, int option, const char *word)
{
	switch (option) {
	case OPTION_COMPARE:
		request->compares = true;
		return optarg ? run_compare_parse(&request->compare, optarg) : RUN_OK;
	case OPTION_DOCTOR:
		request->is_doctor = true;
		return RUN_OK;
	case OPTION_LIBRARY:
		request->preload = optarg;
		return RUN_OK;
	case OPTION_PRINT_ENV:
		request->print_env = true;
		return RUN_OK;
	case OPTION_SUMMARY:
		return set_summary(request, optarg);
	case OPTION_VERSION:
		puts("gpupool-run " GPUPOOL_VERSION);
		request->is_done = true;
		return RUN_OK;
	case 'h':
		print_help();
		request->is_done = true;
		return RUN_OK;
	case 'q':
		run_is_quiet = true;
		return RUN_OK;
	case '?':
	case ':':
		return refuse_option(option, word);
	default:
		return set_option((enum gp_option)(option - OPTION_TABLE), optarg);
	}
}

static enum run_status check_usage(const struct request *request)
{
	if (request->is_doctor && (request->print_env || request->compares)) {
		run_error("use one of them; see gpupool-run --help.", "--doctor and %s exclude each other.",
			request->print_env ? "--print-env" : "--compare");
		return RUN_USAGE;
	}
	if (request->command || request->print_env || request->is_doctor)
		return RUN_OK;
	run_error("gpupool-run [options] CMD [ARG...]; see gpupool-run --help.", "there is no CMD to start.");
	return RUN_USAGE;
}

/* Takes the next word as the value of --stacks if it is one: before, the value could be a word of its own. */
static void take_stacks_value(int argc, char **argv)
{
	struct gp_text_error unused;

	if (!optarg && optind < argc && gp_config_check(GP_OPTION_STACKS, argv[optind], &unused) >= 0)
		optarg = argv[optind++];
}

static enum run_status parse_options(int argc, char **argv, struct request *request)
{
	struct option options[OWN_OPTIONS + GP_OPTION_COUNT + 1];
	enum run_status status = RUN_OK;

	fill_options(options);
	opterr = 0;
	while (status == RUN_OK && !request->is_done) {
		/* "+": options behind CMD belong to CMD. ":": a missing value is returned as ':', not as '?'. */
		int option = getopt_long(argc, argv, "+:hq", options, NULL);
		if (option < 0)
			break;
		if (option == OPTION_TABLE + GP_OPTION_STACKS)
			take_stacks_value(argc, argv);
		status = take_option(request, option, argv[optind - 1]);
	}
	request->command = optind < argc ? argv + optind : NULL;
	return status == RUN_OK && !request->is_done ? check_usage(request) : status;
}

static void report_variable(void *arg, const struct gp_config_report *report)
{
	char line[GP_CONFIG_MESSAGE_SIZE];

	if (report->problem == GP_CONFIG_UNKNOWN_NAME) {
		gp_config_report_format(report, line, sizeof(line));
		run_warn(NULL, "%s.", line);
	} else {
		run_mark(report->variable, report->value, &report->error);
	}
}

/* Options have been put into the environment before, so a bad value there that an option replaces is not an error. */
static enum run_status check_environment(struct gp_config *config)
{
	return gp_config_parse(config, environ, report_variable, NULL) < 0 ? RUN_USAGE : RUN_OK;
}

/* NVTX loads one tool only. If the user has chosen a profiler, it keeps the ranges, and regions by NVTX stay unused. */
static enum run_status set_injection(const char *library, const struct gp_config *config)
{
	const char *tool = getenv(INJECTION);

	if (!gp_config_regions_has(&config->regions, GP_REGION_BY_NVTX))
		return RUN_OK;
	if (tool && *tool && strcmp(tool, library) != 0) {
		run_warn("unset " INJECTION " to use NVTX ranges as regions.",
			INJECTION " is set to another tool, %s: NVTX ranges are not used as regions.", tool);
		return RUN_OK;
	}
	if (setenv(INJECTION, library, 1) == 0)
		return RUN_OK;
	run_error(NULL, "cannot set " INJECTION ": %s.", strerror(errno));
	return RUN_FAILED;
}

static void print_export(const char *name, const char *value)
{
	printf("export %s='", name);
	for (; *value; value++)
		if (*value == '\'')
			fputs("'\\''", stdout);
		else
			putchar(*value);
	puts("'");
}

static enum run_status print_environment(const struct request *request, const struct gp_config *config)
{
	for (int i = 0; i < GP_OPTION_COUNT; i++) {
		const char *value = getenv(gp_config_options[i].variable);
		if (value && *value)
			print_export(gp_config_options[i].variable, value);
	}
	print_export("LD_PRELOAD", getenv("LD_PRELOAD"));
	if (getenv(INJECTION))
		print_export(INJECTION, getenv(INJECTION));
	if (request->has_asan)
		print_export(ASAN_OPTIONS, getenv(ASAN_OPTIONS));
	if (config->own_pools == GP_CONFIG_OWN_POOLS_OFF)
		run_pools_print(print_export);
	if (fflush(stdout) == EOF) {
		run_error(NULL, "cannot print: %s.", strerror(errno));
		return RUN_FAILED;
	}
	return RUN_OK;
}

static enum run_status set_preload(const char *library)
{
	char *value = run_preload_value(library, getenv("LD_PRELOAD"));
	int r = setenv("LD_PRELOAD", value, 1);

	free(value);
	if (r < 0) {
		run_error(NULL, "cannot set LD_PRELOAD: %s.", strerror(errno));
		return RUN_FAILED;
	}
	return RUN_OK;
}

static enum run_status set_asan_options(void)
{
	char *value = run_asan_options(getenv(ASAN_OPTIONS));
	int r = setenv(ASAN_OPTIONS, value, 1);

	free(value);
	if (r < 0) {
		run_error(NULL, "cannot set " ASAN_OPTIONS ": %s.", strerror(errno));
		return RUN_FAILED;
	}
	return RUN_OK;
}

static enum run_status turn_pools_off(void)
{
	enum run_status status = run_pools_off();

	if (status == RUN_OK)
		run_pools_say();
	return status;
}

static enum run_status prepare(struct request *request, const struct gp_config *config)
{
	struct run_elf elf;
	char *library = request->preload ? run_library_absolute(request->preload) : run_library_default();
	enum run_status status = run_library_check(library, &elf);

	if (status == RUN_OK && request->command)
		status = run_program_check(*request->command, &elf, &request->has_asan);
	if (status == RUN_OK && request->has_asan)
		status = set_asan_options();
	if (status == RUN_OK)
		status = run_record_check(config);
	if (status == RUN_OK && config->own_pools == GP_CONFIG_OWN_POOLS_OFF)
		status = turn_pools_off();
	if (status == RUN_OK)
		status = set_preload(library);
	if (status == RUN_OK)
		status = set_injection(library, config);
	if (status == RUN_OK && request->command)
		run_program_warn(*request->command);
	request->path = library;
	return status;
}

static bool wants_summary(const struct request *request, const struct gp_config *config)
{
	if (!config->is_enabled || request->summary == SUMMARY_OFF)
		return false;
	return request->summary == SUMMARY_ON || (!run_is_quiet && isatty(STDERR_FILENO) && !run_summary_is_nested());
}

static enum run_status start_with_summary(char **command)
{
	struct run_summary summary;
	struct run_command child;

	if (!run_summary_init(&summary)) {
		execvp(*command, command);
		return run_cannot_start(*command, errno);
	}
	if (!run_wait(command, summary.fd, &child))
		return RUN_FAILED;
	if (child.error)
		return run_cannot_start(*command, child.error);
	/* The terminal has shown "^C" in this line. */
	if (WIFSIGNALED(child.status) && WTERMSIG(child.status) == SIGINT && isatty(STDERR_FILENO))
		fputc('\n', stderr);
	run_summary_print(&summary, *command, child.pid);
	run_end_like(&child);
}

/* Checks what the runs would disturb in each other. */
static enum run_status check_compare(const struct request *request, const struct gp_config *config)
{
	if (request->print_env)
		run_error("leave one of them out.", "--compare and --print-env exclude each other.");
	else if (!config->is_enabled)
		run_error("leave out --enable, and unset GPUPOOL.", "--compare needs gpupool, which is switched off.");
	else if (*config->record_file && !strstr(config->record_file, "%p"))
		run_error("use %p in its name, or record a single run.",
			"--compare runs CMD several times, which cannot all record to %s.", config->record_file);
	else
		return RUN_OK;
	return RUN_USAGE;
}

static int compare(struct request *request, const struct gp_config *config, char **environment)
{
	struct run_compare *wanted = &request->compare;

	wanted->command = request->command;
	if (!wanted->n_types && run_compare_parse(wanted, config->text[GP_OPTION_POOL]) != RUN_OK)
		return RUN_USAGE;
	run_environment_clean(environment, request->path);
	wanted->raw_environment = environment;
	return run_compare(wanted);
}

static enum run_status start(const struct request *request, const struct gp_config *config)
{
	if (wants_summary(request, config))
		return start_with_summary(request->command);
	execvp(*request->command, request->command);
	return run_cannot_start(*request->command, errno);
}

int main(int argc, char **argv)
{
	/* Static, so that what they own counts as in use until the end. */
	static struct gp_config config;
	static struct request request;
	static char **before;
	enum run_status status;

	if (argc && !strcmp(argv[0], RUN_PROBE_NAME))
		return run_probe_main(argv + 1);
	before = run_environment_copy();
	status = parse_options(argc, argv, &request);
	if (status == RUN_OK && !request.is_done && request.is_doctor)
		return run_doctor(request.preload, request.command ? *request.command : NULL);
	if (status == RUN_OK && !request.is_done)
		status = check_environment(&config);
	if (status == RUN_OK && !request.is_done && request.compares)
		status = check_compare(&request, &config);
	if (status == RUN_OK && !request.is_done)
		status = prepare(&request, &config);
	if (status != RUN_OK || request.is_done)
		return status;
	if (request.compares)
		return compare(&request, &config, before);
	return request.print_env ? print_environment(&request, &config) : start(&request, &config);
}
