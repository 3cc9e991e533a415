/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "stat_survey.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "stat_abstract.h"
#include "stat_explain.h"
#include "stat_places.h"

enum {
	BATCH_MAX = 256, /* processes asked at once, if their answers are short: bounds descriptors */
	KEPT_MAX = 256,  /* of which the connection is kept; no batch has some of which it is and some of which not */
};

#define BATCH_BYTES ((size_t)256 << 20) /* of all answers of a batch */

#define LOOK_NS INT64_C(1000000000)

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

/* At the first time; later it is connected still, or has to be again. */
static void open_one(struct stat_survey *survey, struct stat_process *process, bool is_kept)
{
	const struct stat_dir *dir = &survey->dirs[process->dir];
	struct ctl_client *client = &process->client;

	client->dir_fd = dir->fd;
	client->name = process->name;
	client->uid = dir->uid;
	client->is_kept = is_kept;
	if (client->fd < 0 && !client->is_late)
		ctl_client_open(client);
	if (client->error == -ECONNREFUSED && is_dead(process)) {
		if (dir->uid == geteuid())
			unlinkat(dir->fd, process->name, 0);
		process->is_dropped = true;
	}
	if (client->peer_pid > 0)
		process->pid = client->peer_pid;
	process->is_dropped |= stat_abstract_is_false(survey, process);
}

static void check_wanted(struct stat_process *process, const struct stat_question *question)
{
	if (process->client.error == -ENOENT || !is_wanted(question, process->pid))
		process->is_dropped = true;
	if (!process->is_dropped)
		return;
	ctl_client_close(&process->client);
	process->client.error = -ENOENT;
}

static void take_answer(struct stat_process *process, const struct stat_question *question)
{
	const struct ctl_client *client = &process->client;

	/* It may have ended while it was asked, and taken its socket along. */
	if (client->error == -ENOENT ||
		((client->error == -ECONNRESET || client->error == -ECONNREFUSED) && is_dead(process)))
		process->is_dropped = true;
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
	const struct stat_question *question, bool is_kept)
{
	struct ctl_client clients[BATCH_MAX];

	for (size_t i = 0; i < n; i++) {
		open_one(survey, &processes[i], is_kept);
		check_wanted(&processes[i], question);
		clients[i] = processes[i].client;
	}
	if (question->request)
		ctl_client_ask(
			clients, n, question->request, question->max_bytes, question->timeout_ms);
	for (size_t i = 0; i < n; i++) {
		processes[i].client = clients[i];
		take_answer(&processes[i], question);
		if (!is_kept || processes[i].is_dropped)
			ctl_client_close(&processes[i].client);
	}
}

/* A power of two, as KEPT_MAX is. */
static size_t batch_of(const struct stat_question *question)
{
	size_t batch = BATCH_MAX;

	while (batch > 1 && question->max_bytes > BATCH_BYTES / batch)
		batch /= 2;
	return batch;
}

static void ask(struct stat_survey *survey, const struct stat_question *question, bool is_repeated)
{
	size_t batch = batch_of(question);

	for (size_t i = 0; i < survey->n_processes; i += batch) {
		size_t left = survey->n_processes - i;

		ask_batch(survey, survey->processes + i, left < batch ? left : batch, question,
			is_repeated && i < KEPT_MAX);
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

static void look(struct stat_survey *survey, const struct stat_question *question)
{
	*survey = (struct stat_survey){0};
	stat_places_own(survey);
	if (geteuid() == 0)
		stat_places_all_users(survey);
	for (size_t i = 0; i < question->n_pids; i++)
		stat_places_of_process(survey, question->pids[i]);
	for (size_t i = 0; i < survey->n_dirs; i++)
		stat_places_list(survey, i);
	stat_abstract_list(survey);
	for (size_t i = 0; i < survey->n_processes; i++)
		survey->processes[i].client.fd = -1;
}

void stat_survey_run(struct stat_survey *survey, const struct stat_question *question)
{
	look(survey, question);
	ask(survey, question, false);
	forget_dropped(survey);
}

static bool is_same(const struct stat_survey *one, const struct stat_process *a, const struct stat_survey *other,
	const struct stat_process *b)
{
	const struct stat_dir *dir = &one->dirs[a->dir], *other_dir = &other->dirs[b->dir];

	return a->start_ticks == b->start_ticks && !strcmp(a->name, b->name) && dir->device == other_dir->device &&
	       dir->inode == other_dir->inode;
}

/* Those that are still there take their connections along. */
static void look_again(struct stat_survey *survey, const struct stat_question *question)
{
	struct stat_survey old = *survey;

	look(survey, question);
	for (size_t i = 0; i < survey->n_processes; i++)
		for (size_t k = 0; k < old.n_processes; k++) {
			struct ctl_client *client = &old.processes[k].client;

			if (!is_same(survey, &survey->processes[i], &old, &old.processes[k]))
				continue;
			survey->processes[i].client = *client;
			*client = (struct ctl_client){.fd = -1};
		}
	stat_survey_deinit(&old);
}

static void forget_answers(struct stat_survey *survey)
{
	for (size_t i = 0; i < survey->n_processes; i++) {
		struct stat_process *process = &survey->processes[i];

		json_decref(process->reply);
		process->reply = NULL;
		process->exit = STAT_OK;
		process->error[0] = process->next[0] = '\0';
	}
}

void stat_survey_again(struct stat_survey *survey, const struct stat_question *question)
{
	int64_t now_ns = ctl_client_now_ns();

	if (!survey->looked_ns || now_ns - survey->looked_ns >= LOOK_NS) {
		look_again(survey, question);
		survey->looked_ns = now_ns;
	} else {
		forget_answers(survey);
	}
	ask(survey, question, true);
	forget_dropped(survey);
}

void stat_survey_deinit(struct stat_survey *survey)
{
	for (size_t i = 0; i < survey->n_processes; i++) {
		json_decref(survey->processes[i].reply);
		ctl_client_close(&survey->processes[i].client);
	}
	for (size_t i = 0; i < survey->n_dirs; i++)
		if (survey->dirs[i].fd >= 0)
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
