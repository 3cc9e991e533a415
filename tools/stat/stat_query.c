/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "stat_query.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/ask/stat_environ.h"
#include "tools/ask/stat_explain.h"
#include "tools/ask/stat_report.h"
#include "tools/ask/stat_watch.h"

enum { FIELDS_MAX = 64, VALUE_MAX = 1200 };

enum source {
	OF_SOCKET,  /* known without asking */
	OF_TEXT,    /* a member of the answer, a text */
	OF_NUMBER,  /* a member of the answer, a number */
	OF_COUNTER, /* of each device; a process has their sum */
	OF_DEVICE,  /* of each device; a process does not have it */
	OF_DEVICE_TEXT,
};

static const struct field {
	const char *name, *member;
	enum source source;
} fields[] = {
	{"pid", NULL, OF_SOCKET},
	{"uid", NULL, OF_SOCKET},
	{"user", NULL, OF_SOCKET},
	{"labels", NULL, OF_SOCKET},
	{"command", "command", OF_TEXT},
	{"pool", "pool", OF_TEXT},
	{"reuse", "reuse", OF_TEXT},
	{"version", "version", OF_TEXT},
	{"uptime_ns", "uptime_ns", OF_NUMBER},
	{"device", "index", OF_DEVICE},
	{"uuid", "uuid", OF_DEVICE_TEXT},
	{"device_total_bytes", "device_total_bytes", OF_DEVICE},
	{"device_free_bytes", "device_free_bytes", OF_DEVICE},
	{"outside_bytes", "outside_bytes", OF_DEVICE},
	{"limit_bytes", "limit_bytes", OF_DEVICE},
	{"unpooled_bytes", "unpooled_bytes", OF_COUNTER},
	{"unpooled_cached_bytes", "unpooled_cached_bytes", OF_COUNTER},
#define STAT(name, ...) {#name, #name, OF_COUNTER},
#include "pool/stats.def"
};
enum { N_FIELDS = sizeof(fields) / sizeof(fields[0]) };

struct query {
	const struct stat_options *options;
	enum stat_query_rows rows;
	const struct field *fields[FIELDS_MAX];
	size_t n;
	bool has_header, has_units;
};

static const char *const default_fields[] = {
	[STAT_QUERY_PROCESSES] = "pid,user,uptime_ns,pool,used_bytes,cached_bytes,total_bytes,command",
	[STAT_QUERY_DEVICES] =
		"pid,device,used_bytes,cached_bytes,pending_bytes,total_bytes,limit_bytes,device_free_bytes",
};

static bool is_available(const struct query *query, const struct field *field)
{
	return query->rows == STAT_QUERY_DEVICES || field->source < OF_DEVICE;
}

static bool refuse_field(const struct query *query, const char *name)
{
	char names[1024] = "";
	size_t length = 0;

	for (int i = 0; i < N_FIELDS; i++)
		if (length < sizeof(names) && is_available(query, &fields[i]))
			length += (size_t)snprintf(
				names + length, sizeof(names) - length, "%s%s", length ? "," : "", fields[i].name);
	stat_error(names, "--query: there is no field '%s'.", name);
	return false;
}

static bool take_field(struct query *query, const char *name)
{
	for (int i = 0; i < N_FIELDS; i++) {
		if (!is_available(query, &fields[i]) || strcmp(fields[i].name, name) != 0)
			continue;
		if (query->n == FIELDS_MAX) {
			stat_error(NULL, "--query: there are more than %d fields.", FIELDS_MAX);
			return false;
		}
		query->fields[query->n++] = &fields[i];
		return true;
	}
	return refuse_field(query, name);
}

static bool take_fields(struct query *query, const char *list)
{
	char *copy = stat_alloc(strdup(list)), *save = NULL;
	bool is_valid = true;

	for (char *name = strtok_r(copy, ", ", &save); name && is_valid; name = strtok_r(NULL, ", ", &save))
		is_valid = take_field(query, name);
	free(copy);
	if (is_valid && !query->n)
		is_valid = refuse_field(query, "");
	return is_valid;
}

static bool take_format(struct query *query, const char *list)
{
	char *copy = stat_alloc(strdup(list)), *save = NULL;
	bool is_csv = false, is_valid = true;

	for (char *word = strtok_r(copy, ",", &save); word; word = strtok_r(NULL, ",", &save)) {
		if (!strcmp(word, "csv"))
			is_csv = true;
		else if (!strcmp(word, "noheader"))
			query->has_header = false;
		else if (!strcmp(word, "nounits"))
			query->has_units = false;
		else
			is_valid = false;
	}
	free(copy);
	if (is_csv && is_valid)
		return true;
	stat_error("use csv[,noheader][,nounits].", "--format: '%s' is not a known format.", list);
	return false;
}

static const char *unit_of(const struct field *field)
{
	size_t length = strlen(field->name);

	if (length > 6 && !strcmp(field->name + length - 6, "_bytes"))
		return "B";
	return length > 3 && !strcmp(field->name + length - 3, "_ns") ? "ns" : NULL;
}

static void write_number(const struct query *query, const struct field *field, bool is_known, uint64_t number,
	char value[static VALUE_MAX])
{
	const char *unit = query->has_units ? unit_of(field) : NULL;

	if (is_known)
		snprintf(value, VALUE_MAX, "%" PRIu64 "%s%s", number, unit ? " " : "", unit ? unit : "");
	else
		strcpy(value, "[N/A]");
}

static void write_process_field(const struct stat_process *process, const char *name, char value[static VALUE_MAX])
{
	char user[STAT_TEXT_MAX];

	if (!strcmp(name, "pid")) {
		snprintf(value, VALUE_MAX, "%d", (int)process->pid);
	} else if (!strcmp(name, "uid")) {
		snprintf(value, VALUE_MAX, "%u", (unsigned)process->uid);
	} else if (!strcmp(name, "user")) {
		stat_explain_user(user, process->uid);
		snprintf(value, VALUE_MAX, "%s", user);
	} else {
		stat_environ_labels(value, VALUE_MAX, process);
	}
}

static void write_value(const struct query *query, const struct field *field, const struct stat_process *process,
	const json_t *device, char value[static VALUE_MAX])
{
	const json_t *object = field->source == OF_NUMBER ? process->reply : device;
	const char *text;
	uint64_t number;
	bool is_known;

	if (field->source == OF_SOCKET) {
		write_process_field(process, field->name, value);
	} else if (field->source == OF_TEXT) {
		stat_clean(value, VALUE_MAX, stat_reply_text(process->reply, field->member));
	} else if (field->source == OF_DEVICE_TEXT) {
		text = json_string_value(json_object_get(device, field->member));
		stat_clean(value, VALUE_MAX, text ? text : "[N/A]");
	} else if (field->source == OF_COUNTER && !device) {
		number = stat_reply_sum(json_object_get(process->reply, "devices"), field->member);
		write_number(query, field, true, number, value);
	} else {
		is_known = stat_reply_u64(object, field->member, &number);
		write_number(query, field, is_known, number, value);
	}
}

/* Returns true if a spreadsheet would take the value for a formula; a quote mark makes it text. */
static bool is_formula(const char *value)
{
	return *value && strchr("=+-@", *value);
}

/*
 * Prints a value, in quotes if necessary, with each quote in it doubled. RFC 4180 allows quotes only around a whole
 * field, so no space may precede them.
 */
static void print_value(const char *value, bool is_first)
{
	bool is_quoted = strpbrk(value, ",\"");

	fputs(is_first ? "" : is_quoted ? "," : ", ", stdout);
	if (is_quoted)
		putchar('"');
	if (is_formula(value))
		putchar('\'');
	for (; *value; value++) {
		if (*value == '"')
			putchar('"');
		putchar(*value);
	}
	if (is_quoted)
		putchar('"');
}

static void print_row(const struct query *query, const struct stat_process *process, const json_t *device)
{
	char value[VALUE_MAX], clean[VALUE_MAX];

	for (size_t i = 0; i < query->n; i++) {
		write_value(query, query->fields[i], process, device, value);
		stat_clean(clean, sizeof(clean), value);
		print_value(clean, i == 0);
	}
	putchar('\n');
}

static void print_header(const struct query *query)
{
	for (size_t i = 0; i < query->n; i++) {
		const char *unit = query->has_units ? unit_of(query->fields[i]) : NULL;

		printf("%s%s%s%s%s", i ? ", " : "", query->fields[i]->name, unit ? " [" : "", unit ? unit : "",
			unit ? "]" : "");
	}
	putchar('\n');
}

static enum stat_exit show(void *arg, struct stat_survey *survey)
{
	struct query *query = arg;

	if (query->has_header)
		print_header(query);
	query->has_header = false; /* printed once, also with --watch */
	for (size_t i = 0; i < survey->n_processes; i++) {
		const struct stat_process *process = &survey->processes[i];
		const json_t *devices = json_object_get(process->reply, "devices"), *device;
		size_t k;

		if (!process->reply)
			continue;
		if (query->rows == STAT_QUERY_PROCESSES)
			print_row(query, process, NULL);
		else
			json_array_foreach(devices, k, device)
				print_row(query, process, device);
	}
	return stat_report_errors(survey, query->options);
}

enum stat_exit stat_query_run(
	const struct stat_question *question, const struct stat_options *options, enum stat_query_rows rows)
{
	struct stat_options quiet = *options;
	struct query query = {.options = &quiet, .rows = rows, .has_header = true, .has_units = true};

	quiet.is_quiet = true; /* no empty lines between rows */
	if (options->is_json || options->is_quiet) {
		stat_error(NULL, "--query cannot be used with %s.", options->is_json ? "--json" : "-q");
		return STAT_USAGE;
	}
	if (!take_fields(&query, options->query ? options->query : default_fields[rows]) ||
		!take_format(&query, options->format ? options->format : "csv"))
		return STAT_USAGE;
	return stat_watch(question, &quiet, show, &query);
}
