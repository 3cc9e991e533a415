/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "stat_survey.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "stat_explain.h"
#include "stat_places.h"

enum { BATCH = 32 }; /* processes asked at once: bounds descriptors and memory */

static bool is_wanted(const struct stat_question *question, pid_t pid)
{
	for (size_t i = 0; i < question->n_pids; i++)
		if (question->pids[i] == pid)
			return true;
	return question->n_pids == 0;
}

/* What a socket leaves behind whose process was killed. */
static bool is_dead(const struct stat_process *process)
{
	uint64_t start_ticks;
	char state;
	int error = gp_ctl_process_stat(process->pid, &start_ticks, &state);

	return error ? error == -ENOENT || error == -ESRCH : start_ticks != process->start_ticks;
}

static void open_one(struct stat_survey *survey, struct stat_process *process,
	struct ctl_client *client, const struct stat_question *question)
{
	const struct stat_dir *dir = &survey->dirs[process->dir];

	*client = (struct ctl_client){.dir_fd = dir->fd, .name = process->name, .uid = dir->uid};
	ctl_client_open(client);
	if (client->error == -ECONNREFUSED && is_dead(process)) {
		if (dir->uid == geteuid())
			unlinkat(dir->fd, process->name, 0);
		process->is_dropped = true;
	}
	if (client->peer_pid > 0)
		process->pid = client->peer_pid;
	if (client->error == -ENOENT || !is_wanted(question, process->pid))
		process->is_dropped = true;
	if (process->is_dropped)
		ctl_client_close(client);
}

static void take_answer(struct stat_process *process, const struct ctl_client *client,
	const struct stat_question *question)
{
	if (process->is_dropped)
		return;
	if (client->error)
		stat_explain_error(process, client->error, question);
	else if (question->request)
		process->reply = stat_reply_parse(client->answer, client->length, question->schema,
			&process->exit, process->error);
	if (process->exit == STAT_OTHER_VERSION)
		snprintf(process->next, sizeof(process->next),
			"use the gpupool-stat that belongs to its libgpupool.so.");
}

static void ask_batch(struct stat_survey *survey, struct stat_process *processes, size_t n,
	const struct stat_question *question)
{
	struct ctl_client clients[BATCH];

	for (size_t i = 0; i < n; i++)
		open_one(survey, &processes[i], &clients[i], question);
	if (question->request)
		ctl_client_ask(
			clients, n, question->request, question->max_bytes, question->timeout_ms);
	for (size_t i = 0; i < n; i++) {
		take_answer(&processes[i], &clients[i], question);
		ctl_client_close(&clients[i]);
	}
}

static int compare_pids(const void *a, const void *b)
{
	const struct stat_process *one = a, *other = b;

	return (one->pid > other->pid) - (one->pid < other->pid);
}

static void forget_dropped(struct stat_survey *survey)
{
	size_t n = 0;

	for (size_t i = 0; i < survey->n_processes; i++)
		if (!survey->processes[i].is_dropped)
			survey->processes[n++] = survey->processes[i];
	survey->n_processes = n;
	if (n)
		qsort(survey->processes, n, sizeof(*survey->processes), compare_pids);
}

void stat_survey_run(struct stat_survey *survey, const struct stat_question *question)
{
	*survey = (struct stat_survey){0};
	stat_places_own(survey);
	if (geteuid() == 0)
		stat_places_all_users(survey);
	for (size_t i = 0; i < question->n_pids; i++)
		stat_places_of_process(survey, question->pids[i]);
	for (size_t i = 0; i < survey->n_dirs; i++)
		stat_places_list(survey, i);
	for (size_t i = 0; i < survey->n_processes; i += BATCH) {
		size_t left = survey->n_processes - i;

		ask_batch(survey, survey->processes + i, left < BATCH ? left : BATCH, question);
	}
	forget_dropped(survey);
}

void stat_survey_deinit(struct stat_survey *survey)
{
	for (size_t i = 0; i < survey->n_processes; i++)
		json_decref(survey->processes[i].reply);
	for (size_t i = 0; i < survey->n_dirs; i++)
		close(survey->dirs[i].fd);
	free(survey->processes);
	free(survey->dirs);
	*survey = (struct stat_survey){0};
}

const struct stat_process *stat_survey_find(const struct stat_survey *survey, pid_t pid)
{
	for (size_t i = 0; i < survey->n_processes; i++)
		if (survey->processes[i].pid == pid)
			return &survey->processes[i];
	return NULL;
}
