/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Reads the environment into a struct gp_config. config.def lists the options, and size.c reads amounts. */

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

#include "config.h"
#include "file.h"
#include "job.h"
#include "nearest.h"

#define PREFIX                "GPUPOOL_"
#define NAME_MAX_LENGTH       47
#define VALUE_SHOWN           80 /* a report shows at most this many bytes of a value */
#define PENDING_COUNT_OF_NONE "10"

const struct gp_config_option gp_config_options[GP_OPTION_COUNT] = {
#define GP_OPTION(symbol, ...) [GP_OPTION_##symbol] = GP_ROW(__VA_ARGS__),
#define GP_ROW(variable, option, type, field, default_text, values, help)      \
	{                                                                      \
		variable, option, GP_CONFIG_##type, default_text, values, help \
	}
#include "config.def"
};

static const size_t field_offset[GP_OPTION_COUNT] = {
#define GP_OPTION(symbol, variable, option, type, field, ...) [GP_OPTION_##symbol] = offsetof(struct gp_config, field),
#include "config.def"
};

#define TYPE_OF_BOOL      bool
#define TYPE_OF_WORD      unsigned
#define TYPE_OF_LIMITS    struct gp_limit_list
#define TYPE_OF_LIMIT     struct gp_limit
#define TYPE_OF_GROUP     struct gp_config_group
#define TYPE_OF_SIZE      uint64_t
#define TYPE_OF_COUNT     uint64_t
#define TYPE_OF_RATIO     double
#define TYPE_OF_WAIT      uint64_t
#define TYPE_OF_THREADS   uint64_t
#define TYPE_OF_SLEEP     uint64_t
#define TYPE_OF_YIELD     enum gp_config_yield
#define TYPE_OF_PATH      char[GP_CONFIG_VALUE_SIZE]
#define TYPE_OF_STACKS    struct gp_config_stacks
#define TYPE_OF_DEBUG     struct gp_config_debug
#define TYPE_OF_REGIONS   struct gp_config_regions
#define TYPE_OF_REPORT    char[GP_CONFIG_VALUE_SIZE]
#define TYPE_OF_OOM_FILE  char[GP_CONFIG_VALUE_SIZE]
#define TYPE_OF_DIRECTORY char[GP_CONFIG_VALUE_SIZE]
#define GP_OPTION(symbol, variable, option, type, field, ...)                                                    \
	_Static_assert(__builtin_types_compatible_p(__typeof__(((struct gp_config *)0)->field), TYPE_OF_##type), \
		variable ": the field is of another type than its parser");
#include "config.def"

static int refuse(struct gp_text_error *error, size_t offset, const char *why, const char *next)
{
	*error = (struct gp_text_error){.offset = offset, .why = why, .next = next};
	return -EINVAL;
}

/* Returns the index of the text in a list of words such as "one|two|three", or -1. */
static int word_find(const char *words, const char *text)
{
	size_t length = strlen(text);
	char word[16];

	for (int i = 0; *words; i++) {
		size_t n = strcspn(words, "|");
		snprintf(word, sizeof(word), "%.*s", (int)n, words);
		if (gp_text_is_word(text, length, word))
			return i;
		words += n + (words[n] == '|');
	}
	return -1;
}

static int parse_bool(const char *text, bool *ret, struct gp_text_error *error)
{
	int word = word_find("off|on|0|1|no|yes|false|true", text);

	if (word < 0)
		return refuse(error, 0, "is neither on nor off", "use on or off");
	*ret = word & 1;
	return 0;
}

static int parse_word(const char *words, const char *text, unsigned *ret, struct gp_text_error *error)
{
	int word = word_find(words, text);

	if (word < 0)
		return refuse(error, 0, "is not one of its values", words);
	*ret = (unsigned)word;
	return 0;
}

/* Parses "auto", which is stored as auto_value, or a whole number up to max. */
static int parse_auto_or_number(const char *text, uint64_t auto_value, uint64_t max, const char *next, uint64_t *ret,
	struct gp_text_error *error)
{
	uint64_t value;

	if (word_find("auto", text) == 0) {
		*ret = auto_value;
		return 0;
	}
	if (gp_count_parse(text, &value, error) < 0) {
		error->next = next;
		return -EINVAL;
	}
	if (value > max)
		return refuse(error, 0, "is too large", next);
	*ret = value;
	return 0;
}

/* Parses a whole number with a unit of time. Stores milliseconds. */
static int parse_time(const char *text, uint64_t *ret_ms, struct gp_text_error *error)
{
	static const struct {
		const char *unit;
		uint64_t ms;
	} units[] = {{"ms", 1}, {"s", 1000}, {"m", 60000}, {"h", 3600000}};
	static const char next[] = "use a whole number and ms, s, m or h, such as idle:30s";
	size_t digits = strspn(text, "0123456789");
	uint64_t value = 0;

	if (!digits)
		return refuse(error, 0, "is not a time", next);
	for (size_t i = 0; i < digits && value <= GP_CONFIG_SLEEP_MAX_MS; i++)
		value = value * 10 + (uint64_t)(text[i] - '0');
	for (size_t i = 0; i < sizeof(units) / sizeof(*units); i++) {
		if (strcmp(text + digits, units[i].unit) != 0)
			continue;
		if (!value)
			return refuse(error, 0, "is zero", next);
		if (value > GP_CONFIG_SLEEP_MAX_MS / units[i].ms)
			return refuse(error, 0, "is longer than 30 days", next);
		*ret_ms = value * units[i].ms;
		return 0;
	}
	return refuse(error, digits, text[digits] ? "has an unknown unit of time" : "has no unit of time", next);
}

static int parse_sleep(const char *text, uint64_t *ret, struct gp_text_error *error)
{
	static const char idle[] = "idle:";
	bool is_on;

	if (strncmp(text, idle, strlen(idle)) == 0) {
		if (parse_time(text + strlen(idle), ret, error) == 0)
			return 0;
		error->offset += strlen(idle);
		return -EINVAL;
	}
	if (parse_bool(text, &is_on, error) < 0)
		return refuse(error, 0, "is neither off, on nor idle:TIME", "use off, on or idle:30s");
	*ret = is_on ? GP_CONFIG_SLEEP_ASKED : GP_CONFIG_SLEEP_OFF;
	return 0;
}

static int parse_yield(const char *text, enum gp_config_yield *ret, struct gp_text_error *error)
{
	bool is_on;

	if (word_find("all", text) == 0) {
		*ret = GP_CONFIG_YIELD_ALL;
		return 0;
	}
	if (parse_bool(text, &is_on, error) < 0)
		return refuse(error, 0, "is neither on, off nor all", "use on, off or all");
	*ret = is_on ? GP_CONFIG_YIELD_ON : GP_CONFIG_YIELD_OFF;
	return 0;
}

static int parse_path(const char *text, char *ret, struct gp_text_error *error)
{
	if (!*text)
		return refuse(error, 0, "is empty", "name a file");
	for (const char *at = strchr(text, '%'); at; at = strchr(at + 2, '%'))
		if (!at[1] || !strchr(GP_FILE_LETTERS "%", at[1]))
			return refuse(error, (size_t)(at - text), "has an unknown % sequence",
				"use " GP_FILE_LETTERS_HELP ", %% percent sign");
	strcpy(ret, text);
	return 0;
}

static int parse_directory(const char *text, char *ret, struct gp_text_error *error)
{
	if (*text != '/')
		return refuse(error, 0, "is not an absolute path", "start it with a slash");
	strcpy(ret, text);
	return 0;
}

static int parse_report(const char *text, char *ret, struct gp_text_error *error)
{
	static const char *const words[] = {"", "exit", "summary"}, *const with_file[] = {"exit:", "summary:"};
	char file[GP_CONFIG_VALUE_SIZE];
	int word = word_find("off|exit|summary", text);

	for (size_t i = 0; i < sizeof(with_file) / sizeof(*with_file); i++) {
		size_t length = strlen(with_file[i]);
		if (strncmp(text, with_file[i], length) != 0)
			continue;
		if (parse_path(text + length, file, error) < 0) {
			error->offset += length;
			return -EINVAL;
		}
		strcpy(ret, text);
		return 0;
	}
	if (word < 0)
		return refuse(
			error, 0, "is not one of its values", "use off, exit, summary, exit:FILE or summary:FILE");
	strcpy(ret, words[word]);
	return 0;
}

static int parse_oom_file(const char *text, char *ret, struct gp_text_error *error)
{
	static const char *const words[] = {"auto", "off"};
	int word = word_find("auto|off", text);

	if (word < 0)
		return parse_path(text, ret, error);
	strcpy(ret, words[word]);
	return 0;
}

/* Reads a value into a field of the type TYPE_OF_... of its option. Stores it only on success. */
static int parse_value(
	const struct gp_config_option *option, const char *text, void *field, struct gp_text_error *error)
{
	if (strlen(text) >= GP_CONFIG_VALUE_SIZE)
		return refuse(error, GP_CONFIG_VALUE_SIZE - 1, "is too long", NULL);
	switch (option->type) {
	case GP_CONFIG_BOOL:
		return parse_bool(text, field, error);
	case GP_CONFIG_WORD:
		return parse_word(option->values, text, field, error);
	case GP_CONFIG_LIMITS:
		return gp_limit_list_parse(text, field, error);
	case GP_CONFIG_LIMIT:
		return gp_limit_parse(text, field, error);
	case GP_CONFIG_GROUP:
		return gp_config_group_parse(text, field, error);
	case GP_CONFIG_SIZE:
		return gp_size_parse(text, field, error);
	case GP_CONFIG_COUNT:
		return gp_count_parse(text, field, error);
	case GP_CONFIG_RATIO:
		return gp_ratio_parse(text, field, error);
	case GP_CONFIG_WAIT:
		return parse_auto_or_number(text, GP_CONFIG_OOM_WAIT_AUTO, UINT32_MAX,
			"use auto, or a whole number of milliseconds", field, error);
	case GP_CONFIG_THREADS:
		return parse_auto_or_number(text, GP_CONFIG_THREADS_AUTO, GP_CONFIG_THREADS_MAX,
			"use auto, or a number from 0 to 64", field, error);
	case GP_CONFIG_SLEEP:
		return parse_sleep(text, field, error);
	case GP_CONFIG_YIELD:
		return parse_yield(text, field, error);
	case GP_CONFIG_PATH:
		return parse_path(text, field, error);
	case GP_CONFIG_STACKS:
		return gp_config_stacks_parse(text, field, error);
	case GP_CONFIG_DEBUG:
		return gp_config_debug_parse(text, field, error);
	case GP_CONFIG_REGIONS:
		return gp_config_regions_parse(text, field, error);
	case GP_CONFIG_REPORT:
		return parse_report(text, field, error);
	case GP_CONFIG_OOM_FILE:
		return parse_oom_file(text, field, error);
	case GP_CONFIG_DIRECTORY:
		return parse_directory(text, field, error);
	}
	return refuse(error, 0, "has an unknown type", NULL);
}

int gp_config_check(enum gp_option option, const char *text, struct gp_text_error *error)
{
	union {
		struct gp_limit_list limits;
		struct gp_config_group group;
		struct gp_config_regions regions;
		char path[GP_CONFIG_VALUE_SIZE];
	} ignored;

	return parse_value(&gp_config_options[option], text, &ignored, error);
}

/* A limit that replaces one that could not be read holds. */
static void forget_error(struct gp_config *config, enum gp_option option)
{
	if (option == GP_OPTION_LIMIT)
		*config->limit_error = '\0';
	else if (option == GP_OPTION_LIMIT_GROUP)
		*config->group_error = '\0';
	else if (option == GP_OPTION_PINNED_LIMIT)
		*config->pinned_limit_error = '\0';
}

static int set(struct gp_config *config, enum gp_option option, const char *text, struct gp_text_error *error)
{
	void *field = (char *)config + field_offset[option];
	int r = parse_value(&gp_config_options[option], text, field, error);

	if (r)
		return r;
	strcpy(config->text[option], text);
	forget_error(config, option);
	return 0;
}

static void set_defaults(struct gp_config *config)
{
	struct gp_text_error unused;

	memset(config, 0, sizeof(*config));
	for (int i = 0; i < GP_OPTION_COUNT; i++)
		if (*gp_config_options[i].default_text)
			set(config, (enum gp_option)i, gp_config_options[i].default_text, &unused);
}

static void note_source(struct gp_config *config, enum gp_option option, const char *origin)
{
	config->source[option] = origin ? GP_CONFIG_FILE : GP_CONFIG_ENVIRONMENT;
	snprintf(config->origin[option], sizeof(config->origin[option]), "%s", origin ? origin : "");
}

/* Sets the limit to zero bytes, so that allocations fail, and keeps the text as it was typed and the reason. */
static void fail_closed(struct gp_config *config, enum gp_option option, const struct gp_config_report *report)
{
	static const struct gp_limit nothing = {.kind = GP_LIMIT_BYTES, .bytes = 0};

	if (option == GP_OPTION_LIMIT) {
		config->limit = (struct gp_limit_list){.rest = nothing};
		gp_config_report_format(report, config->limit_error, sizeof(config->limit_error));
	} else if (option == GP_OPTION_LIMIT_GROUP) {
		config->group = (struct gp_config_group){.is_on = true, .limit.rest = nothing};
		gp_config_report_format(report, config->group_error, sizeof(config->group_error));
	} else {
		config->pinned_limit = nothing;
		gp_config_report_format(report, config->pinned_limit_error, sizeof(config->pinned_limit_error));
	}
	snprintf(config->text[option], GP_CONFIG_VALUE_SIZE, "%s", report->value);
	note_source(config, option, report->origin);
}

/* Sets an option from a file, or with a NULL origin from the environment. */
static int set_from(struct gp_config *config, enum gp_option option, const char *text, const char *origin,
	gp_config_report_fn report_fn, void *arg)
{
	const struct gp_config_option *row = &gp_config_options[option];
	struct gp_config_report report = {.variable = row->variable, .value = text, .origin = origin};

	if (set(config, option, text, &report.error) == 0) {
		note_source(config, option, origin);
		return 0;
	}
	report.problem = GP_CONFIG_USES_DEFAULT;
	if (row->type == GP_CONFIG_LIMITS || row->type == GP_CONFIG_LIMIT || row->type == GP_CONFIG_GROUP) {
		report.problem = GP_CONFIG_FAILS_CLOSED;
		fail_closed(config, option, &report);
	}
	report_fn(arg, &report);
	return -EINVAL;
}

static void report_unknown(
	const char *name, const char *value, const char *origin, gp_config_report_fn report_fn, void *arg)
{
	struct gp_config_report report = {
		.problem = GP_CONFIG_UNKNOWN_NAME, .variable = name, .value = value, .origin = origin};
	struct gp_nearest nearest;

	report.error.why = "is not a variable of gpupool";
	/* In the environment the name begins with the 8 letters of PREFIX. */
	gp_nearest_init(&nearest, name, strlen(name) > 3 ? strlen(name) / 3 - 1 : 0);
	for (int i = 0; i < GP_OPTION_COUNT; i++)
		gp_nearest_try(&nearest, gp_config_options[i].variable);
	report.error.next = nearest.name;
	report_fn(arg, &report);
}

static int option_find(const char *name)
{
	for (int i = 0; i < GP_OPTION_COUNT; i++)
		if (!strcmp(name, gp_config_options[i].variable))
			return i;
	return -1;
}

/*
 * Checks need memory that the GPU has finished with, and a way past the caches, so that every allocation and free is
 * seen. Stacks are switched on by default, since a report of a bad write is of little use without them.
 */
static void set_for_debug(struct gp_config *config)
{
	static const struct {
		enum gp_option option;
		const char *text;
	} implied[] = {
		{GP_OPTION_THREAD_CACHE, "0"},
		{GP_OPTION_RUNTIME_LAYER, "off"},
		{GP_OPTION_SYNC_FREE, "on"},
		{GP_OPTION_REUSE, "completed"},
	};
	struct gp_text_error unused;
	char depth[16];

	for (size_t i = 0; i < sizeof(implied) / sizeof(*implied); i++)
		set(config, implied[i].option, implied[i].text, &unused);
	snprintf(depth, sizeof(depth), "%d", GP_DEBUG_DEPTH);
	if (config->source[GP_OPTION_STACKS] == GP_CONFIG_DEFAULT)
		set(config, GP_OPTION_STACKS, depth, &unused);
}

/* Takes the limit from the variables of schedulers. A value that cannot be read makes allocations fail, too. */
static int set_from_scheduler(
	struct gp_config *config, char *const *environment, gp_config_report_fn report_fn, void *arg)
{
	struct gp_scheduler_limits found;
	struct gp_text_error unused;

	if (gp_scheduler_limits_read(environment, &found) < 0) {
		const struct gp_config_report report = {
			.problem = GP_CONFIG_FAILS_CLOSED,
			.variable = found.bad_variable,
			.value = found.bad_value,
			.error = found.error,
		};
		fail_closed(config, GP_OPTION_LIMIT, &report);
		report_fn(arg, &report);
		return -EINVAL;
	}
	if (!*found.variables)
		return 0;
	set(config, GP_OPTION_LIMIT, found.text, &unused);
	strcpy(config->limit_variables, found.variables);
	config->source[GP_OPTION_LIMIT] = GP_CONFIG_SCHEDULER;
	return 0;
}

static int parse_environment(struct gp_config *config, char *const *environment, gp_config_report_fn report, void *arg)
{
	bool is_seen[GP_OPTION_COUNT] = {false};
	char name[NAME_MAX_LENGTH + 1];
	struct gp_text_error unused;
	int result = 0;

	for (char *const *entry = environment; entry && *entry; entry++) {
		size_t length = strcspn(*entry, "=");
		const char *value = *entry + length + 1;

		if (strncmp(*entry, "GPUPOOL", strlen("GPUPOOL")) || !(*entry)[length] || !*value)
			continue;
		snprintf(name, sizeof(name), "%.*s", (int)length, *entry);
		int option = option_find(name);
		if (option < 0 && !strncmp(name, PREFIX, strlen(PREFIX))) {
			report_unknown(name, value, NULL, report, arg);
		} else if (option >= 0 && !is_seen[option]) {
			/* If a variable is set twice the first entry counts, as for getenv(). */
			is_seen[option] = true;
			if (set_from(config, (enum gp_option)option, value, NULL, report, arg) < 0)
				result = -EINVAL;
		}
	}
	if (!is_seen[GP_OPTION_LIMIT] && set_from_scheduler(config, environment, report, arg) < 0)
		result = -EINVAL;
	if (config->pool == GP_CONFIG_POOL_NONE && config->source[GP_OPTION_PENDING_COUNT] == GP_CONFIG_DEFAULT)
		set(config, GP_OPTION_PENDING_COUNT, PENDING_COUNT_OF_NONE, &unused);
	if (gp_config_debug_is_on(&config->debug))
		set_for_debug(config);
	return result;
}

int gp_config_parse(struct gp_config *config, char *const *environment, gp_config_report_fn report, void *arg)
{
	set_defaults(config);
	return parse_environment(config, environment, report, arg);
}

static const char *find_in(const void *environment, const char *name)
{
	size_t length = strlen(name);

	for (char *const *entry = environment; entry && *entry; entry++)
		if (!strncmp(*entry, name, length) && (*entry)[length] == '=')
			return *entry + length + 1;
	return NULL;
}

struct loading {
	struct gp_config *config;
	gp_config_report_fn report;
	void *arg;
	bool is_secure;
};

/* In a set-user-ID program no file is written where a file of settings says: its directory may be the user's. */
static bool names_a_file(enum gp_option option)
{
	switch (gp_config_options[option].type) {
	case GP_CONFIG_PATH:
	case GP_CONFIG_REPORT:
	case GP_CONFIG_OOM_FILE:
	case GP_CONFIG_DIRECTORY:
		return true;
	default:
		return false;
	}
}

static void take_setting(void *arg, const char *origin, const char *name, const char *value)
{
	const struct loading *loading = arg;
	int option = option_find(name);

	if (option < 0) {
		report_unknown(name, value, origin, loading->report, loading->arg);
	} else if (option == GP_OPTION_CONFIG_DIR || option == GP_OPTION_OWN_POOLS) {
		const struct gp_config_report report = {.problem = GP_CONFIG_IGNORED_LINE,
			.variable = origin,
			.value = name,
			.error.why = "cannot be set in a file"};

		loading->report(loading->arg, &report);
	} else if (*value && !(loading->is_secure && names_a_file((enum gp_option)option))) {
		(void)set_from(loading->config, (enum gp_option)option, value, origin, loading->report, loading->arg);
	}
}

static void take_problem(void *arg, const char *origin, const char *text, const char *why, const char *next)
{
	const struct loading *loading = arg;
	const struct gp_config_report report = {
		.problem = text ? GP_CONFIG_IGNORED_LINE : GP_CONFIG_IGNORED_FILE,
		.variable = origin,
		.value = text ? text : "",
		.error = {.why = why, .next = next},
	};

	loading->report(loading->arg, &report);
}

int gp_config_load(struct gp_config *config, char *const *environment, gp_config_report_fn report, void *arg)
{
	struct loading loading = {config, report, arg, getauxval(AT_SECURE) != 0};
	const struct gp_config_lines lines = {take_setting, take_problem, &loading};
	const char *directory = find_in(environment, gp_config_options[GP_OPTION_CONFIG_DIR].variable);
	const char *user = find_in(environment, "USER");
	const struct gp_config_process process = {
		.uid = getuid(),
		.user = user ? user : find_in(environment, "LOGNAME"),
		.job = gp_job_value("job", find_in, environment),
	};
	bool is_default = !directory || *directory != '/';

	set_defaults(config);
	gp_config_files_read(is_default ? GP_CONFIG_ETC : directory, is_default, &process, &lines);
	return parse_environment(config, environment, report, arg);
}

char **gp_config_environ(void)
{
	static char *nothing[] = {NULL};

	return getauxval(AT_SECURE) ? nothing : environ;
}

const char *gp_config_variable(const char *name)
{
	return find_in(gp_config_environ(), name);
}

void gp_config_check_devices(const struct gp_config *config, int device_count, gp_config_report_fn report_fn, void *arg)
{
	char why[64];
	struct gp_config_report report = {
		.problem = GP_CONFIG_ABSENT_DEVICE,
		.variable = gp_config_options[GP_OPTION_LIMIT].variable,
		.value = config->text[GP_OPTION_LIMIT],
		.error.why = why,
	};

	for (int device = device_count; device < GP_LIMIT_DEVICES_MAX; device++) {
		if (!(config->limit.named >> device & 1))
			continue;
		snprintf(why, sizeof(why), "names device %d, but the machine has only %d", device, device_count);
		report_fn(arg, &report);
	}
}

void gp_config_limit_for(
	const struct gp_limit_list *limits, int device, uint64_t device_total_bytes, uint64_t *ret_bytes)
{
	*ret_bytes = gp_limit_bytes(gp_limit_list_find(limits, device), device_total_bytes);
}

int gp_config_value_text(const struct gp_config *config, enum gp_option option, char *buffer, size_t size)
{
	return snprintf(buffer, size, "%s", config->text[option]);
}

const char *gp_config_source_text(const struct gp_config *config, enum gp_option option)
{
	switch (config->source[option]) {
	case GP_CONFIG_ENVIRONMENT:
		return "environment";
	case GP_CONFIG_SCHEDULER:
		return config->limit_variables;
	case GP_CONFIG_FILE:
		return config->origin[option];
	case GP_CONFIG_DEFAULT:
		break;
	}
	return "default";
}

int gp_config_report_format(const struct gp_config_report *report, char *buffer, size_t size)
{
	const struct gp_text_error *error = &report->error;
	const char *cut = strlen(report->value) > VALUE_SHOWN ? "..." : "";
	const char *origin = report->origin ? report->origin : "", *colon = report->origin ? ": " : "";

	switch (report->problem) {
	case GP_CONFIG_FAILS_CLOSED:
	case GP_CONFIG_USES_DEFAULT:
		return snprintf(buffer, size, "%s%s%s: '%.*s%s' %s (character %zu)%s%s; %s", origin, colon,
			report->variable, VALUE_SHOWN, report->value, cut, error->why, error->offset + 1,
			error->next ? ": " : "", error->next ? error->next : "",
			report->problem == GP_CONFIG_FAILS_CLOSED ? "allocations fail until it is corrected"
			: report->origin                          ? "it is ignored"
								  : "using the default");
	case GP_CONFIG_UNKNOWN_NAME:
		return snprintf(buffer, size, "%s%s%s %s%s%s", origin, colon, report->variable, error->why,
			error->next ? "; the nearest is " : "", error->next ? error->next : "");
	case GP_CONFIG_ABSENT_DEVICE:
		return snprintf(
			buffer, size, "%s: '%.*s%s' %s", report->variable, VALUE_SHOWN, report->value, cut, error->why);
	case GP_CONFIG_IGNORED_LINE:
		return snprintf(buffer, size, "%s: '%.*s%s' %s%s%s; it is ignored", report->variable, VALUE_SHOWN,
			report->value, cut, error->why, error->next ? ": " : "", error->next ? error->next : "");
	case GP_CONFIG_IGNORED_FILE:
		return snprintf(buffer, size, "%s %s; it is ignored", report->variable, error->why);
	}
	return 0;
}
