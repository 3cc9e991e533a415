/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "stat_check.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/size.h"
#include "tools/ask/stat_explain.h"
#include "tools/ask/stat_report.h"
#include "tools/ask/stat_watch.h"
#include "tools/text/stat_number.h"
#include "tools/text/stat_text.h"
#include "stat_commands.h"

enum { LEVELS_MAX = 16 };

/*
 * The quantities that can be compared with a level. A percentage refers to the limit. If there is no limit, and always
 * for OUTSIDE and DEVICE, it refers to the memory of the device. A level without a name applies to USED, and so do the
 * defaults: cached memory goes back to the driver when it is needed.
 */
enum quantity { USED, TOTAL, CACHED, PENDING, OUTSIDE, DEVICE, OOMS, N_QUANTITIES };
static const struct {
	const char *name, *member;
} quantities[N_QUANTITIES] = {
	[USED] = {"used", "used_bytes"}, /* with unpooled_bytes */
	[TOTAL] = {"total", "total_bytes"},
	[CACHED] = {"cached", "cached_bytes"},
	[PENDING] = {"pending", "pending_bytes"},
	[OUTSIDE] = {"outside", "outside_bytes"},
	[DEVICE] = {"device", NULL}, /* used by all processes */
	[OOMS] = {"ooms", "ooms"},
};

struct level {
	enum quantity quantity;
	bool is_share;
	double share;
	uint64_t number;
};

struct levels {
	struct level list[LEVELS_MAX + 1]; /* one more for the default level of OOMS */
	size_t n;
};

struct check {
	const struct stat_options *options;
	struct levels warn, crit;

	/* The rest holds the result of one survey. */
	enum stat_check worst;
	struct lines {
		FILE *file;
		char *text;
		size_t length;
	} wrong, data; /* the problems as text, and performance data */
	size_t n_wrong, n_processes;
	json_t *problems; /* the same problems as JSON */
};

static const char *const state_names[] = {"OK", "WARNING", "CRITICAL", "UNKNOWN"};

static bool parse_amount(struct level *level, const char *text)
{
	struct gp_text_error error;
	char *end;
	double share = strtod(text, &end);

	if (*text >= '0' && *text <= '9' && !strcmp(end, "%") && share >= 0 && share <= 1e6) {
		level->is_share = true;
		level->share = share / 100;
		return level->quantity != OOMS;
	}
	if (level->quantity == OOMS)
		return stat_number_parse(text, UINT64_MAX - 1, &level->number);
	return gp_size_parse(text, &level->number, &error) == 0;
}

static bool parse_level(struct levels *levels, const char *text)
{
	const char *sign = strchr(text, '=');
	size_t length = sign ? (size_t)(sign - text) : 0;
	struct level level = {.quantity = USED};

	while (sign && level.quantity < N_QUANTITIES &&
		(strlen(quantities[level.quantity].name) != length ||
			strncmp(quantities[level.quantity].name, text, length) != 0))
		level.quantity++;
	if (level.quantity == N_QUANTITIES || levels->n == LEVELS_MAX || !parse_amount(&level, sign ? sign + 1 : text))
		return false;
	levels->list[levels->n++] = level;
	return true;
}

static bool parse_levels(struct levels *levels, const char *option, const char *text)
{
	char *copy = stat_alloc(strdup(text)), *save = NULL;
	bool is_valid = *text != '\0';

	for (char *word = strtok_r(copy, ",", &save); word && is_valid; word = strtok_r(NULL, ",", &save)) {
		is_valid = parse_level(levels, word);
		if (!is_valid)
			stat_error("as in: used=80%,cached=4GiB,ooms=1; or total, pending, outside, device",
				"%s: '%s' is not a level.", option, word);
	}
	free(copy);
	return is_valid;
}

static bool value_of(const json_t *device, enum quantity quantity, uint64_t *ret)
{
	uint64_t total, left;

	if (quantity == USED && stat_reply_u64(device, "used_bytes", ret)) {
		*ret += stat_reply_u64_or_0(device, "unpooled_bytes");
		return true;
	}
	if (quantity != DEVICE)
		return stat_reply_u64(device, quantities[quantity].member, ret);
	if (!stat_reply_u64(device, "device_total_bytes", &total) ||
		!stat_reply_u64(device, "device_free_bytes", &left))
		return false;
	*ret = total > left ? total - left : 0;
	return true;
}

/* Gets the amount that a percentage refers to. */
static bool whole_of(const json_t *device, enum quantity quantity, uint64_t *ret)
{
	return (quantity != DEVICE && quantity != OUTSIDE && stat_reply_u64(device, "limit_bytes", ret)) ||
	       stat_reply_u64(device, "device_total_bytes", ret);
}

/* Computes a level as a number, for this device. Returns false if it is a percentage of an unknown amount. */
static bool level_of(const json_t *device, const struct level *level, uint64_t *ret)
{
	uint64_t whole;

	*ret = level->number;
	if (!level->is_share)
		return true;
	if (!whole_of(device, level->quantity, &whole))
		return false;
	*ret = (double)whole * level->share < 1e19 ? (uint64_t)((double)whole * level->share) : UINT64_MAX;
	return true;
}

/* Makes the JSON object of a problem. The caller sets the members about a device, if the problem is about one. */
static json_t *problem(enum stat_check how, pid_t pid)
{
	return stat_alloc(json_pack("{s:s, s:o, s:n, s:n, s:n, s:n}", "state", state_names[how - STAT_CHECK_OK], "pid",
		pid ? json_integer(pid) : json_null(), "device", "what", "value", "level"));
}

static void add_problem(struct check *check, enum stat_check how, json_t *problem, const char *format, ...)
	__attribute__((format(printf, 4, 5)));
static void add_problem(struct check *check, enum stat_check how, json_t *problem, const char *format, ...)
{
	/* The severity of each state: UNKNOWN is less severe than WARNING and CRITICAL, which are known to be bad. */
	static const int order[] = {0, 2, 3, 1};
	va_list args;

	json_array_append_new(check->problems, problem);

	if (order[how - STAT_CHECK_OK] > order[check->worst - STAT_CHECK_OK])
		check->worst = how;
	fputs(check->n_wrong++ ? "; " : "", check->wrong.file);
	va_start(args, format);
	vfprintf(check->wrong.file, format, args);
	va_end(args);
}

static void write_amount(char text[static STAT_TEXT_MAX], enum quantity quantity, uint64_t number)
{
	if (quantity == OOMS)
		snprintf(text, STAT_TEXT_MAX, "%" PRIu64, number);
	else
		stat_bytes(text, number);
}

/* Returns the first level of a list that the value has reached, or NULL. */
static const struct level *find_reached(
	const struct levels *levels, const json_t *device, enum quantity quantity, uint64_t value)
{
	uint64_t level;

	for (size_t i = 0; i < levels->n; i++)
		if (levels->list[i].quantity == quantity && level_of(device, &levels->list[i], &level) &&
			value >= level)
			return &levels->list[i];
	return NULL;
}

/* Writes "device 0" or "pinned". */
static void write_memory(char text[static STAT_TEXT_MAX], const json_t *memory)
{
	uint64_t index;

	if (stat_reply_u64(memory, "index", &index))
		snprintf(text, STAT_TEXT_MAX, "device %" PRIu64, index);
	else
		snprintf(text, STAT_TEXT_MAX, "pinned");
}

static void check_quantity(struct check *check, pid_t pid, const json_t *device, enum quantity quantity)
{
	uint64_t value, level, index;
	const struct level *found;
	json_t *wrong;
	char amount[STAT_TEXT_MAX], most[STAT_TEXT_MAX], memory[STAT_TEXT_MAX];
	enum stat_check how = STAT_CHECK_CRITICAL;

	if (!value_of(device, quantity, &value))
		return;
	found = find_reached(&check->crit, device, quantity, value);
	if (!found) {
		found = find_reached(&check->warn, device, quantity, value);
		how = STAT_CHECK_WARNING;
	}
	if (!found)
		return;
	level_of(device, found, &level);
	write_amount(amount, quantity, value);
	write_amount(most, quantity, level);
	wrong = problem(how, pid);
	if (stat_reply_u64(device, "index", &index))
		json_object_set_new(wrong, "device", json_integer((json_int_t)index));
	json_object_set_new(wrong, "what", json_string(quantities[quantity].name));
	json_object_set_new(wrong, "value", json_integer((json_int_t)value));
	json_object_set_new(wrong, "level", json_integer((json_int_t)level));
	write_memory(memory, device);
	add_problem(check, how, wrong, "pid %d %s %s %s reaches %s", (int)pid, memory, quantities[quantity].name,
		amount, most);
}

static void add_level(struct check *check, const struct levels *levels, const json_t *device, enum quantity quantity)
{
	uint64_t level;

	fputc(';', check->data.file);
	for (size_t i = 0; i < levels->n; i++)
		if (levels->list[i].quantity == quantity && level_of(device, &levels->list[i], &level)) {
			fprintf(check->data.file, "%" PRIu64, level);
			return;
		}
}

/* Writes performance data, such as 'pid 7 device 0 total'=5B;8;9;0;10. */
static void add_data(struct check *check, pid_t pid, const json_t *device, enum quantity quantity)
{
	uint64_t value, whole;

	if (!value_of(device, quantity, &value))
		return;
	fprintf(check->data.file, " 'pid %d device %" PRIu64 " %s'=%" PRIu64 "%s", (int)pid,
		stat_reply_u64_or_0(device, "index"), quantities[quantity].name, value, quantity == OOMS ? "" : "B");
	add_level(check, &check->warn, device, quantity);
	add_level(check, &check->crit, device, quantity);
	fputs(";0", check->data.file);
	if (quantity != OOMS && whole_of(device, quantity, &whole))
		fprintf(check->data.file, ";%" PRIu64, whole);
}

static void check_process(struct check *check, const struct stat_process *process)
{
	const json_t *devices = json_object_get(process->reply, "devices"), *device;
	uint64_t seen = 0, unused;
	size_t i;

	if (!process->reply) {
		add_problem(check, STAT_CHECK_UNKNOWN, problem(STAT_CHECK_UNKNOWN, process->pid), "pid %d %s",
			(int)process->pid, process->error);
		return;
	}
	check->n_processes++;
	json_array_foreach(devices, i, device) {
		if (!stat_reply_new_device(device, &seen, &unused))
			continue;
		for (int quantity = 0; quantity < N_QUANTITIES; quantity++)
			check_quantity(check, process->pid, device, (enum quantity)quantity);
		add_data(check, process->pid, device, TOTAL);
		add_data(check, process->pid, device, USED);
		add_data(check, process->pid, device, OOMS);
	}
	check_quantity(check, process->pid, json_object_get(process->reply, "pinned"), OOMS);
}

static void check_missing(struct check *check, const struct stat_survey *survey)
{
	const struct stat_options *options = check->options;
	struct stat_process missing;

	for (size_t i = 0; i < options->n_pids; i++) {
		if (stat_survey_find(survey, options->pids[i]))
			continue;
		stat_explain_missing(&missing, options->pids[i], survey);
		add_problem(check, STAT_CHECK_UNKNOWN, problem(STAT_CHECK_UNKNOWN, missing.pid), "pid %d %s",
			(int)missing.pid, missing.error);
	}
	if (!options->n_pids && !survey->n_processes)
		add_problem(check, STAT_CHECK_UNKNOWN, problem(STAT_CHECK_UNKNOWN, 0), "no process with gpupool");
}

/* A process that was not asked may be in any state. */
static void check_completeness(struct check *check, const struct stat_survey *survey)
{
	char why[STAT_ERROR_MAX];

	if (stat_survey_is_incomplete(survey, why))
		add_problem(check, STAT_CHECK_UNKNOWN, problem(STAT_CHECK_UNKNOWN, 0),
			"not all processes were asked; left out: %s", why);
}

static void begin_lines(struct lines *lines)
{
	lines->file = stat_alloc(open_memstream(&lines->text, &lines->length));
}

static void end_lines(struct lines *lines)
{
	if (fclose(lines->file) != 0)
		stat_alloc(NULL);
}

static void print_json(struct check *check)
{
	json_t *answer = stat_alloc(json_pack("{s:s, s:s, s:i, s:I, s:s, s:O}", "schema", "gpupool.check/1", "state",
		state_names[check->worst - STAT_CHECK_OK], "code", (int)check->worst - STAT_CHECK_OK, "n_processes",
		(json_int_t)check->n_processes, "text", check->wrong.text, "problems", check->problems));

	stat_report_print(answer);
	json_decref(answer);
}

/* Prints the line. Performance data begin at the first '|', so the text must not contain one. */
static void print(struct check *check)
{
	char *clean = stat_alloc(malloc(check->wrong.length + 1));
	stat_clean(clean, check->wrong.length + 1, check->wrong.text);
	for (char *bar = clean; (bar = strchr(bar, '|')) != NULL;)
		*bar = '/';
	printf("GPUPOOL %s - ", state_names[check->worst - STAT_CHECK_OK]);
	if (*clean)
		fputs(clean, stdout);
	else
		printf("%zu process%s", check->n_processes, check->n_processes == 1 ? "" : "es");
	printf("%s%s\n", check->data.length ? " |" : "", check->data.text);
	free(clean);
}

static enum stat_exit show(void *arg, struct stat_survey *survey)
{
	struct check *check = arg;

	check->worst = STAT_CHECK_OK;
	check->n_wrong = check->n_processes = 0;
	check->problems = stat_alloc(json_array());
	begin_lines(&check->wrong);
	begin_lines(&check->data);
	for (size_t i = 0; i < survey->n_processes; i++)
		check_process(check, &survey->processes[i]);
	check_missing(check, survey);
	check_completeness(check, survey);
	end_lines(&check->wrong);
	end_lines(&check->data);
	if (check->options->is_json)
		print_json(check);
	else
		print(check);
	free(check->wrong.text);
	free(check->data.text);
	json_decref(check->problems);
	return (enum stat_exit)check->worst;
}

/* Warns of one out-of-memory error or more, unless the user gave a level for them. */
static void add_ooms(struct levels *levels)
{
	for (size_t i = 0; i < levels->n; i++)
		if (levels->list[i].quantity == OOMS)
			return;
	levels->list[levels->n++] = (struct level){.quantity = OOMS, .number = 1};
}

enum stat_exit stat_check_run(const struct stat_command *command, const struct stat_options *options)
{
	struct stat_question question = stat_command_question(command, options, "status\n");
	struct stat_options quiet = *options;
	struct check check = {.options = options};

	question.schema = "status";
	quiet.is_quiet = true; /* no empty lines between repeated lines */
	if (!parse_levels(&check.warn, "--warn", options->warn ? options->warn : "used=80%") ||
		!parse_levels(&check.crit, "--crit", options->crit ? options->crit : "used=95%"))
		return STAT_USAGE;
	add_ooms(&check.warn);
	return stat_watch(&question, &quiet, show, &check);
}

int stat_check_exit(enum stat_exit result)
{
	int beyond = (int)result - STAT_CHECK_OK;

	if (result == STAT_OK)
		return 0;
	return beyond >= 0 ? beyond : STAT_CHECK_UNKNOWN - STAT_CHECK_OK;
}
