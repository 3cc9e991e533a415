/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* gpupool-stat list. */

#include "stat_list.h"

#include <stdio.h>

#include "tools/ask/stat_environ.h"
#include "tools/ask/stat_explain.h"
#include "tools/ask/stat_report.h"
#include "tools/ask/stat_watch.h"
#include "tools/text/stat_text.h"
#include "stat_commands.h"
#include "stat_query.h"

/* labels: NULL if no process has any; the row then has no cell for them. */
static void add_process(struct stat_table *table, const struct stat_process *process, const char *labels)
{
	const json_t *devices = json_object_get(process->reply, "devices");
	char pid[STAT_TEXT_MAX], user[STAT_TEXT_MAX], age[STAT_TEXT_MAX];
	char used[STAT_TEXT_MAX], cached[STAT_TEXT_MAX], total[STAT_TEXT_MAX];
	const char *command = stat_reply_text(process->reply, "command");
	const char *cells[] = {pid, user, age, stat_reply_text(process->reply, "pool"), used, cached, total,
		labels ? labels : command, command};

	snprintf(pid, sizeof(pid), "%d", (int)process->pid);
	stat_explain_user(user, process->uid);
	stat_age(age, stat_reply_u64_or_0(process->reply, "uptime_ns"));
	stat_bytes(used, stat_reply_sum(devices, "used_bytes"));
	stat_bytes(cached, stat_reply_sum(devices, "free_bytes"));
	stat_bytes(total, stat_reply_sum(devices, "total_bytes"));
	stat_table_add(table, cells);
}

static bool has_labels(const struct stat_survey *survey)
{
	char labels[STAT_COLUMN_MAX];

	for (size_t i = 0; i < survey->n_processes; i++) {
		stat_environ_labels(labels, sizeof(labels), &survey->processes[i]);
		if (survey->processes[i].reply && *labels)
			return true;
	}
	return false;
}

void stat_list_show(const struct stat_survey *survey)
{
	static const char *const headings[] = {
		">PID", "<USER", ">UP", "<POOL", ">USED", ">CACHED", ">TOTAL", "<COMMAND"};
	static const char *const labelled[] = {
		">PID", "<USER", ">UP", "<POOL", ">USED", ">CACHED", ">TOTAL", "<JOB", "<COMMAND"};
	bool is_labelled = has_labels(survey);
	struct stat_table *table = is_labelled ? stat_table_new(labelled, sizeof(labelled) / sizeof(*labelled))
					       : stat_table_new(headings, sizeof(headings) / sizeof(*headings));
	char labels[STAT_COLUMN_MAX];
	size_t n = 0;

	for (size_t i = 0; i < survey->n_processes; i++) {
		if (!survey->processes[i].reply)
			continue;
		stat_environ_labels(labels, sizeof(labels), &survey->processes[i]);
		add_process(table, &survey->processes[i], is_labelled ? labels : NULL);
		n++;
	}
	if (n)
		stat_table_print(table, stat_width());
	stat_table_free(table);
}

static enum stat_exit show_answers(void *arg, struct stat_survey *survey)
{
	const struct stat_options *options = arg;

	if (options->is_quiet)
		for (size_t i = 0; i < survey->n_processes; i++)
			printf("%d\n", (int)survey->processes[i].pid);
	else if (options->is_json)
		stat_report_list_json(survey);
	else
		stat_list_show(survey);
	return stat_report_errors(survey, options);
}

enum stat_exit stat_list_run(const struct stat_command *command, const struct stat_options *options)
{
	struct stat_question question = stat_command_question(command, options, "status\n");
	struct stat_options shown = *options;

	question.schema = "status";
	if (options->query || options->format)
		return stat_query_run(&question, options, STAT_QUERY_PROCESSES);
	if (options->is_quiet)
		question.request = NULL;
	return stat_watch(&question, options, show_answers, &shown);
}
