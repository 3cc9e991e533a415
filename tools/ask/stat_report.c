/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "stat_report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/text/stat_text.h"
#include "stat_dirs.h"
#include "stat_environ.h"
#include "stat_explain.h"
#include "stat_schema.h"

/*
 * Escapes everything but printable ASCII, which is safe for a terminal and has the same meaning for jq. jansson does
 * not escape DEL, which can be only in a string.
 */
void stat_report_print(const json_t *value)
{
	char *text = stat_alloc(json_dumps(value, JSON_COMPACT | JSON_ENSURE_ASCII | JSON_REAL_PRECISION(6)));

	for (const char *part = text;; part++) {
		size_t length = strcspn(part, "\x7f");

		fwrite(part, 1, length, stdout);
		part += length;
		if (!*part)
			break;
		fputs("\\u007f", stdout);
	}
	putchar('\n');
	free(text);
}

void stat_report_title(const struct stat_process *process, const char *command)
{
	size_t width = stat_width();
	char clean[1024];
	int used = printf("pid %d  ", (int)process->pid);

	stat_clean(clean, sizeof(clean), command);
	if (used > 0 && width > (size_t)used)
		clean[stat_cut(clean, width - (size_t)used)] = '\0';
	puts(clean);
}

static void add_error(json_t *errors, const struct stat_process *process)
{
	char clean[STAT_ERROR_MAX];

	stat_clean(clean, sizeof(clean), process->error);
	json_array_append_new(errors, json_pack("{s:i, s:s}", "pid", (int)process->pid, "error", clean));
}

static json_t *make_errors(const struct stat_survey *survey, const struct stat_options *options)
{
	json_t *errors = stat_alloc(json_array());
	struct stat_process missing;

	for (size_t i = 0; i < survey->n_processes; i++)
		if (!survey->processes[i].reply)
			add_error(errors, &survey->processes[i]);
	for (size_t i = 0; options && i < options->n_pids; i++) {
		if (stat_survey_find(survey, options->pids[i]))
			continue;
		stat_explain_missing(&missing, options->pids[i], survey);
		add_error(errors, &missing);
	}
	return errors;
}

static void print_list(
	const struct stat_survey *survey, const char *name, const char *member, json_t *members, json_t *errors)
{
	char schema[GP_CTL_SCHEMA_MAX], why[STAT_ERROR_MAX];
	json_t *list;

	snprintf(schema, sizeof(schema), "gpupool.%s/%u", name, stat_schema_version(name));
	list = stat_alloc(json_pack("{s:s, s:o, s:o}", "schema", schema, member, members, "errors", errors));
	if (stat_survey_is_incomplete(survey, why))
		json_object_set_new(list, "incomplete", json_string(why));
	stat_report_print(list);
	json_decref(list);
}

void stat_report_json(const struct stat_survey *survey, const struct stat_options *options, const char *name)
{
	char list_name[GP_CTL_SCHEMA_MAX];
	json_t *replies;

	if (options->n_pids == 1) {
		if (survey->n_processes && survey->processes[0].reply)
			stat_report_print(survey->processes[0].reply);
		return;
	}
	replies = stat_alloc(json_array());
	for (size_t i = 0; i < survey->n_processes; i++) {
		const struct stat_process *process = &survey->processes[i];

		if (!process->reply)
			continue;
		/* In a list, each answer needs the pid of its process. */
		if (!json_object_get(process->reply, "pid"))
			json_object_set_new(process->reply, "pid", json_integer((json_int_t)process->pid));
		json_array_append(replies, process->reply);
	}
	snprintf(list_name, sizeof(list_name), "%.16s-list", name);
	print_list(survey, list_name, "processes", replies, make_errors(survey, options));
}

static json_t *describe(const struct stat_survey *survey, const struct stat_process *process)
{
	json_t *devices = json_object_get(process->reply, "devices"), *sleep = json_object_get(process->reply, "sleep");
	json_t *object;
	char path[GP_CTL_PATH_MAX + GP_CTL_NAME_MAX], clean[sizeof(path)], user[STAT_TEXT_MAX];

	snprintf(path, sizeof(path), "%s/%s", survey->dirs[process->dir].path, process->name);
	stat_clean(clean, sizeof(clean), path);
	stat_explain_user(user, process->uid);
	object = stat_alloc(json_pack("{s:i, s:I, s:s, s:o, s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:I}", "pid",
		(int)process->pid, "uid", (json_int_t)process->uid, "user", user, "labels",
		stat_environ_labels_json(process), "socket", clean, "command",
		stat_reply_text(process->reply, "command"), "pool", stat_reply_text(process->reply, "pool"),
		"uptime_ns", (json_int_t)stat_reply_u64_or_0(process->reply, "uptime_ns"), "used_bytes",
		(json_int_t)stat_reply_sum(devices, "used_bytes"), "cached_bytes",
		(json_int_t)stat_reply_sum(devices, "cached_bytes"), "unused_bytes",
		(json_int_t)stat_reply_sum(devices, "unused_bytes"), "total_bytes",
		(json_int_t)stat_reply_sum(devices, "total_bytes")));
	if (json_is_object(sleep))
		json_object_set(object, "sleep", sleep);
	return object;
}

void stat_report_list_json(const struct stat_survey *survey)
{
	json_t *processes = stat_alloc(json_array());

	for (size_t i = 0; i < survey->n_processes; i++)
		if (survey->processes[i].reply)
			json_array_append_new(processes, describe(survey, &survey->processes[i]));
	stat_report_list(survey, "list", "processes", processes);
}

void stat_report_list(const struct stat_survey *survey, const char *name, const char *member, json_t *members)
{
	print_list(survey, name, member, members, make_errors(survey, NULL));
}

void stat_report_commands(const struct stat_survey *survey)
{
	for (size_t i = 0; i < survey->n_processes; i++) {
		char command[256], clean[256];

		stat_explain_command(command, sizeof(command), survey->processes[i].pid);
		stat_clean(clean, sizeof(clean), command);
		fprintf(stderr, "%*s%7d  %s\n", 12, "", (int)survey->processes[i].pid, clean);
	}
}

static void report_error(const struct stat_process *process)
{
	stat_error(*process->next ? process->next : NULL, "pid %d %s", (int)process->pid, process->error);
}

static void keep_first(enum stat_exit *first, enum stat_exit exit_code)
{
	if (*first == STAT_OK)
		*first = exit_code;
}

static enum stat_exit report_no_process(void)
{
	char dirs[512], text[512];

	stat_dirs_describe(dirs, sizeof(dirs));
	snprintf(text, sizeof(text), "start a program with: gpupool-run COMMAND");
	stat_error(
		text, "no gpupool processes%s on this host (looked in %s).", geteuid() == 0 ? "" : " of yours", dirs);
	return STAT_NO_PROCESS;
}

void stat_report_incomplete(const struct stat_survey *survey)
{
	char why[STAT_ERROR_MAX];

	if (stat_survey_is_incomplete(survey, why))
		stat_error("name the processes that you want to ask, or give it more time with --timeout.",
			"not all processes were asked; left out: %s.", why);
}

enum stat_exit stat_report_errors(const struct stat_survey *survey, const struct stat_options *options)
{
	bool is_in_json = options->is_json && options->n_pids != 1, has_answer = false;
	enum stat_exit first = STAT_OK;
	struct stat_process missing;

	stat_report_incomplete(survey);
	for (size_t i = 0; i < survey->n_processes; i++) {
		const struct stat_process *process = &survey->processes[i];

		has_answer = has_answer || process->exit == STAT_OK;
		if (process->exit == STAT_OK)
			continue;
		keep_first(&first, process->exit);
		if (!is_in_json)
			report_error(process);
	}
	for (size_t i = 0; i < options->n_pids; i++) {
		if (stat_survey_find(survey, options->pids[i]))
			continue;
		stat_explain_missing(&missing, options->pids[i], survey);
		keep_first(&first, missing.exit);
		if (!is_in_json)
			report_error(&missing);
	}
	if (options->n_pids)
		return first;
	if (!survey->n_processes)
		return report_no_process();
	return has_answer ? STAT_OK : first;
}
