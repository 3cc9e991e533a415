/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "stat_oom_job.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/ask/stat_environ.h"
#include "tools/ask/stat_explain.h"
#include "tools/ask/stat_report.h"
#include "tools/text/stat_text.h"

enum { COLUMNS = 8, USER_MAX = 8, CAUSE_MAX = 32, COMMAND_MAX = 256 };

/* The processes of the job: those that run, and then the reports of those that do not answer. */
struct job {
	struct stat_survey all; /* a copy of the survey with a list of its own */
	size_t n_running;
	struct stat_saved *saved; /* one for each process after the running ones */
	size_t n_reports;         /* processes with an error */
};

static void take_job(void *arg, const char *label, const char *value)
{
	if (strcmp(label, "job") == 0)
		snprintf(arg, STAT_COLUMN_MAX * 2, "%s", value);
}

/* A process whose environment is not readable here may still say its job in its answer. */
static bool is_of_job(const struct stat_process *process, const char *job)
{
	char own[STAT_COLUMN_MAX * 2] = "", clean[STAT_COLUMN_MAX * 2];

	stat_clean(clean, sizeof(clean), job);
	stat_environ_each_label(process, take_job, own);
	return strcmp(*own ? own : stat_saved_job(process->reply), *own ? clean : job) == 0;
}

static bool has_report(const struct stat_process *process)
{
	return json_is_object(json_object_get(process->reply, "last"));
}

/* Returns true if the same process, not another with its pid, has answered. */
static bool has_answered(const struct stat_survey *survey, const struct stat_process *saved)
{
	const struct stat_process *process = stat_survey_find(survey, saved->pid);

	return process && process->reply && process->start_ticks == saved->start_ticks;
}

static void find_job(struct job *job, struct stat_survey *survey, const char *name)
{
	struct stat_saved *list;
	size_t n = stat_saved_find_job(survey, name, &list);

	*job = (struct job){.all = *survey, .saved = list};
	job->all.processes = stat_alloc(calloc(survey->n_processes + n + 1, sizeof(*survey->processes)));
	job->all.n_processes = 0;
	for (size_t i = 0; i < survey->n_processes; i++)
		if (is_of_job(&survey->processes[i], name))
			job->all.processes[job->all.n_processes++] = survey->processes[i];
	job->n_running = job->all.n_processes;
	for (size_t i = 0; i < n; i++) {
		if (has_answered(survey, &list[i].process)) {
			json_decref(list[i].process.reply);
			continue;
		}
		job->saved[job->all.n_processes - job->n_running] = list[i];
		job->all.processes[job->all.n_processes++] = list[i].process;
	}
	for (size_t i = 0; i < job->all.n_processes; i++)
		job->n_reports += has_report(&job->all.processes[i]);
}

static void free_job(struct job *job)
{
	for (size_t i = job->n_running; i < job->all.n_processes; i++)
		json_decref(job->all.processes[i].reply);
	free(job->all.processes);
	free(job->saved);
}

static uint64_t age_of(const struct stat_process *process)
{
	return stat_reply_u64_or_0(json_object_get(process->reply, "last"), "age_ns");
}

static int compare_ages(const void *a, const void *b)
{
	const struct stat_process *const *one = a, *const *other = b;

	return (age_of(*one) > age_of(*other)) - (age_of(*one) < age_of(*other));
}

static void take_rank(void *arg, const char *label, const char *value)
{
	if (strcmp(label, "rank") == 0)
		snprintf(arg, STAT_TEXT_MAX, "%.31s", value);
}

static void find_rank(char rank[static STAT_TEXT_MAX], const struct stat_process *process, bool is_running)
{
	const json_t *labels = json_object_get(process->reply, "labels");
	const char *own = json_string_value(json_object_get(labels, "rank"));

	snprintf(rank, STAT_TEXT_MAX, "%.31s", own ? own : "-");
	if (!own && is_running)
		stat_environ_each_label(process, take_rank, rank);
}

static void add_row(struct stat_table *table, const struct job *job, const struct stat_process *process)
{
	const json_t *last = json_object_get(process->reply, "last");
	size_t nth = (size_t)(process - job->all.processes);
	bool is_running = nth < job->n_running;
	char pid[16], rank[STAT_TEXT_MAX], user[STAT_TEXT_MAX], clean[STAT_TEXT_MAX], age[STAT_TEXT_MAX];
	char asked[STAT_TEXT_MAX], cause[CAUSE_MAX], command[COMMAND_MAX];
	const char *state = is_running ? "running" : job->saved[nth - job->n_running].is_running ? "silent" : "ended";
	const char *cells[COLUMNS] = {pid, rank, clean, state, age, asked, cause, command};

	snprintf(pid, sizeof(pid), "%d", (int)process->pid);
	find_rank(rank, process, is_running);
	stat_explain_user(user, process->uid);
	stat_clean(clean, sizeof(clean), user);
	clean[stat_cut(clean, USER_MAX)] = '\0';
	stat_age(age, age_of(process));
	stat_bytes(asked, stat_reply_u64_or_0(last, "requested_bytes"));
	stat_clean(cause, sizeof(cause), stat_reply_text(last, "cause"));
	if (is_running)
		stat_explain_command(command, sizeof(command), process->pid);
	else
		snprintf(command, sizeof(command), "%s", stat_reply_text(process->reply, "command"));
	stat_table_add(table, cells);
}

static void show_table(const struct job *job)
{
	static const char *const headings[COLUMNS] = {
		">PID", ">RANK", "<USER", "<STATE", ">AGO", ">REQUESTED", "<CAUSE", "<COMMAND"};
	const struct stat_process **rows = stat_alloc(calloc(job->n_reports + 1, sizeof(*rows)));
	struct stat_table *table = stat_table_new(headings, COLUMNS);
	size_t n = 0;

	for (size_t i = 0; i < job->all.n_processes; i++)
		if (has_report(&job->all.processes[i]))
			rows[n++] = &job->all.processes[i];
	qsort(rows, n, sizeof(*rows), compare_ages);
	for (size_t i = 0; i < n; i++)
		add_row(table, job, rows[i]);
	stat_table_print(table, stat_width());
	stat_table_free(table);
	free(rows);
	puts("gpupool-stat oom PID shows all of a report.");
}

void stat_oom_title(const struct stat_saved *saved)
{
	char command[256], clean[256];

	snprintf(command, sizeof(command), "%.250s", stat_reply_text(saved->process.reply, "command"));
	stat_clean(clean, sizeof(clean), command);
	printf("pid %d %s: %s\n", (int)saved->process.pid,
		saved->is_running ? "cannot be asked; this is its saved report" : "has ended", clean);
}

static void show_only_report(
	const struct job *job, const struct stat_command *command, const struct stat_options *options)
{
	size_t nth = 0;
	char line[COMMAND_MAX];

	while (!has_report(&job->all.processes[nth]))
		nth++;
	if (nth >= job->n_running) {
		stat_oom_title(&job->saved[nth - job->n_running]);
	} else {
		stat_explain_command(line, sizeof(line), job->all.processes[nth].pid);
		stat_report_title(&job->all.processes[nth], line);
	}
	command->show(&job->all.processes[nth], options);
}

static void show_text(const struct job *job, const struct stat_command *command, const struct stat_options *options)
{
	char clean[STAT_COLUMN_MAX * 2];
	size_t n = 0;

	for (size_t i = 0; i < job->n_running; i++)
		n += job->all.processes[i].reply != NULL;
	stat_clean(clean, sizeof(clean), options->job);
	if (job->n_reports > 1)
		show_table(job);
	else if (job->n_reports)
		show_only_report(job, command, options);
	else if (n)
		printf("no out-of-memory error in the %zu process%s of job %s that run%s\n", n, n == 1 ? "" : "es",
			clean, n == 1 ? "s" : "");
}

/* The answers of running processes say what they belong to, as saved reports do. */
static void add_labels(const struct job *job)
{
	for (size_t i = 0; i < job->n_running; i++) {
		const struct stat_process *process = &job->all.processes[i];

		if (process->reply && !json_object_get(process->reply, "labels"))
			json_object_set_new(process->reply, "labels", stat_environ_labels_json(process));
	}
}

enum stat_exit stat_oom_job_show(
	struct stat_survey *survey, const struct stat_command *command, const struct stat_options *options)
{
	enum stat_exit result;
	struct job job;

	find_job(&job, survey, options->job);
	add_labels(&job);
	if (options->is_json)
		stat_report_json(&job.all, options, command->name);
	else
		show_text(&job, command, options);
	if (job.all.n_processes) {
		result = stat_report_errors(&job.all, options);
	} else {
		stat_report_incomplete(survey);
		stat_error("gpupool-stat list --by=job shows the jobs that run; another user's job needs root.",
			"no process and no saved report of job %s was found.", options->job);
		result = STAT_NO_PROCESS;
	}
	free_job(&job);
	return result;
}
