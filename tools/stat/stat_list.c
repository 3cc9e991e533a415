/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* gpupool-stat list. */

#include "stat_list.h"

#include <stdio.h>

#include "tools/answer/stat_rate.h"
#include "tools/answer/stat_sleep.h"
#include "tools/answer/stat_spill.h"
#include "tools/ask/stat_environ.h"
#include "tools/ask/stat_explain.h"
#include "tools/ask/stat_report.h"
#include "tools/ask/stat_watch.h"
#include "tools/text/stat_text.h"
#include "stat_commands.h"
#include "stat_list_by.h"
#include "stat_query.h"

enum { CELLS_MAX = 12 };

/* The columns that are not always there. */
struct columns {
	bool has_sleep;  /* any process is asleep, or has GPUPOOL_SLEEP set */
	bool has_spill;  /* memory of any process is in the host */
	bool has_rates;  /* the list is repeated */
	bool has_labels; /* any process has some */
};

static void add_process(struct stat_table *table, const struct stat_process *process, const struct columns *columns)
{
	const json_t *devices = json_object_get(process->reply, "devices");
	char pid[STAT_TEXT_MAX], user[STAT_TEXT_MAX], age[STAT_TEXT_MAX];
	char used[STAT_TEXT_MAX], cached[STAT_TEXT_MAX], total[STAT_TEXT_MAX];
	char rate[STAT_TEXT_MAX], labels[STAT_COLUMN_MAX], asleep[STAT_COLUMN_MAX], spilled[STAT_COLUMN_MAX];
	const char *cells[CELLS_MAX] = {pid, user, age, stat_reply_text(process->reply, "pool"), used, cached, total};
	struct stat_rates rates;
	size_t n = 7;

	if (columns->has_sleep)
		cells[n++] = asleep;
	if (columns->has_spill)
		cells[n++] = spilled;
	if (columns->has_rates)
		cells[n++] = rate;
	if (columns->has_labels)
		cells[n++] = labels;
	cells[n] = stat_reply_text(process->reply, "command");
	stat_rates_of_process(&rates, process->reply, process->before);
	stat_rate_text(rate, rates.allocs);
	stat_sleep_cell(asleep, process->reply);
	stat_spill_cell(spilled, process->reply);
	stat_environ_labels(labels, sizeof(labels), process);

	snprintf(pid, sizeof(pid), "%d", (int)process->pid);
	stat_explain_user(user, process->uid);
	stat_age(age, stat_reply_u64_or_0(process->reply, "uptime_ns"));
	stat_bytes(used, stat_reply_sum(devices, "used_bytes"));
	stat_bytes(cached, stat_reply_sum(devices, "cached_bytes"));
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

static bool has_sleep(const struct stat_survey *survey)
{
	for (size_t i = 0; i < survey->n_processes; i++)
		if (survey->processes[i].reply && stat_sleep_is_of_interest(survey->processes[i].reply))
			return true;
	return false;
}

static bool has_spill(const struct stat_survey *survey)
{
	for (size_t i = 0; i < survey->n_processes; i++)
		if (survey->processes[i].reply && stat_spill_bytes(survey->processes[i].reply))
			return true;
	return false;
}

void stat_list_show(const struct stat_survey *survey)
{
	const struct columns columns = {.has_sleep = has_sleep(survey),
		.has_spill = has_spill(survey),
		.has_rates = survey->searched_ns != 0,
		.has_labels = has_labels(survey)};
	const char *headings[CELLS_MAX] = {">PID", "<USER", ">UP", "<POOL", ">USED", ">CACHED", ">TOTAL"};
	struct stat_table *table;
	size_t n_columns = 7, n = 0;

	if (columns.has_sleep)
		headings[n_columns++] = ">ASLEEP";
	if (columns.has_spill)
		headings[n_columns++] = ">IN HOST";
	if (columns.has_rates)
		headings[n_columns++] = ">ALLOC/S";
	if (columns.has_labels)
		headings[n_columns++] = "<JOB";
	headings[n_columns++] = "<COMMAND";
	table = stat_table_new(headings, n_columns);
	for (size_t i = 0; i < survey->n_processes; i++) {
		if (!survey->processes[i].reply)
			continue;
		add_process(table, &survey->processes[i], &columns);
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

static enum stat_exit show_groups(void *arg, struct stat_survey *survey)
{
	const struct stat_options *options = arg;
	enum stat_list_by by;

	(void)stat_list_by_parse(options->by, &by);
	if (options->is_json)
		stat_list_by_json(survey, by);
	else
		stat_list_by_show(survey, by);
	return stat_report_errors(survey, options);
}

/* Checks the value of --by, and that nothing else chooses what the list shows. */
static bool check_by(const struct stat_options *options)
{
	enum stat_list_by unused;

	if (!stat_list_by_parse(options->by, &unused))
		stat_error("use job, user or pod.", "--by: processes cannot be grouped by '%s'.", options->by);
	else if (options->is_quiet || options->query || options->format)
		stat_error("leave out one of them.", "list takes either --by or %s.",
			options->is_quiet ? "-q"
			: options->query  ? "--query"
					  : "--format");
	else
		return true;
	return false;
}

enum stat_exit stat_list_run(const struct stat_command *command, const struct stat_options *options)
{
	struct stat_question question = stat_command_question(command, options, "status\n");
	struct stat_options shown = *options;

	question.schema = "status";
	question.keeps = STAT_KEEPS_BEFORE;
	if (options->by)
		return check_by(options) ? stat_watch(&question, options, show_groups, &shown) : STAT_USAGE;
	if (options->query || options->format)
		return stat_query_run(&question, options, STAT_QUERY_PROCESSES);
	if (options->is_quiet)
		question.request = NULL;
	return stat_watch(&question, options, show_answers, &shown);
}
