/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "stat_survey.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "stat_abstract.h"
#include "stat_dirs.h"
#include "stat_procs.h"
#include "stat_round.h"

#define SEARCH_INTERVAL_NS INT64_C(1000000000)
#define LOOK_INTERVAL_NS   INT64_C(5000000000)

static int compare_pids(const void *a, const void *b)
{
	const struct stat_process *one = a, *other = b;

	return (one->pid > other->pid) - (one->pid < other->pid);
}

static void forget_process(struct stat_process *process)
{
	json_decref(process->reply);
	json_decref(process->before);
	ctl_client_close(&process->client);
}

static void forget_dropped(struct stat_survey *survey)
{
	size_t n = 0;

	for (size_t i = 0; i < survey->n_processes; i++)
		if (!survey->processes[i].is_dropped)
			survey->processes[n++] = survey->processes[i];
		else
			forget_process(&survey->processes[i]);
	survey->n_processes = n;
	if (n)
		qsort(survey->processes, n, sizeof(*survey->processes), compare_pids);
}

/* Searches the directories, the most relevant ones first, because the number of sockets is bounded. */
static void search(struct stat_survey *survey, const struct stat_survey *old, const struct stat_question *question)
{
	int64_t now_ns = ctl_client_now_ns();

	*survey = (struct stat_survey){0};
	stat_dirs_of_caller(survey);
	for (size_t i = 0; i < question->n_pids; i++)
		stat_dirs_of_process(survey, question->pids[i]);
	if (geteuid() == 0)
		stat_dirs_of_all_users(survey);
	if (!old || !old->looked_ns || now_ns - old->looked_ns >= LOOK_INTERVAL_NS) {
		stat_dirs_of_processes(survey);
		survey->looked_ns = now_ns;
	} else {
		stat_dirs_again(survey, old);
		survey->looked_ns = old->looked_ns;
	}
	stat_abstract_list(survey);
}

void stat_survey_find_all(struct stat_survey *survey)
{
	static const struct stat_question none;

	search(survey, NULL, &none);
}

void stat_survey_run(struct stat_survey *survey, const struct stat_question *question)
{
	search(survey, NULL, question);
	stat_round_ask(survey, question, false);
	forget_dropped(survey);
}

static bool is_same(const struct stat_survey *one, const struct stat_process *a, const struct stat_survey *other,
	const struct stat_process *b)
{
	const struct stat_dir *dir = &one->dirs[a->dir], *other_dir = &other->dirs[b->dir];

	return a->start_ticks == b->start_ticks && !strcmp(a->name, b->name) && dir->device == other_dir->device &&
	       dir->inode == other_dir->inode;
}

/* Takes the answer away from a process. It becomes the one before that of `next`, which may be the same process. */
static void pass_answer(struct stat_process *process, struct stat_process *next, const struct stat_question *question)
{
	json_t *reply = process->reply, *before = process->before;

	process->reply = process->before = NULL;
	next->before = reply && question->keeps ? reply : before;
	json_decref(next->before == reply ? before : reply);
}

/* Searches again. Processes that are still there keep their connections. */
static void search_again(struct stat_survey *survey, const struct stat_question *question)
{
	struct stat_survey old = *survey;

	search(survey, &old, question);
	for (size_t i = 0; i < survey->n_processes; i++)
		for (size_t k = 0; k < old.n_processes; k++) {
			struct ctl_client *client = &old.processes[k].client;

			if (!is_same(survey, &survey->processes[i], &old, &old.processes[k]))
				continue;
			survey->processes[i].was_silent = old.processes[k].exit == STAT_NO_ANSWER;
			survey->processes[i].client = *client;
			pass_answer(&old.processes[k], &survey->processes[i], question);
			*client = (struct ctl_client){.fd = -1};
		}
	stat_survey_deinit(&old);
}

static void forget_answers(struct stat_survey *survey, const struct stat_question *question)
{
	for (size_t i = 0; i < survey->n_processes; i++) {
		struct stat_process *process = &survey->processes[i];

		pass_answer(process, process, question);
		process->was_silent = process->exit == STAT_NO_ANSWER;
		process->exit = STAT_OK;
		process->error[0] = process->next[0] = '\0';
	}
}

void stat_survey_again(struct stat_survey *survey, const struct stat_question *question)
{
	int64_t now_ns = ctl_client_now_ns();

	if (!survey->searched_ns || now_ns - survey->searched_ns >= SEARCH_INTERVAL_NS) {
		search_again(survey, question);
		survey->searched_ns = now_ns;
	} else {
		forget_answers(survey, question);
	}
	stat_round_ask(survey, question, true);
	forget_dropped(survey);
}

void stat_survey_deinit(struct stat_survey *survey)
{
	for (size_t i = 0; i < survey->n_processes; i++)
		forget_process(&survey->processes[i]);
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

bool stat_survey_is_incomplete(const struct stat_survey *survey, char why[static STAT_ERROR_MAX])
{
	const struct {
		size_t n;
		const char *what;
	} reasons[] = {
		{survey->missed.n_late, "sockets for which there was no time"},
		{survey->missed.n_beyond, "processes beyond the share of their user"},
		{survey->missed.n_series, "processes whose user has too many series"},
		{survey->missed.n_sockets, "directories with too many entries"},
		{survey->missed.n_places, "processes whose user has too many environments"},
		{survey->missed.n_dirs, "directories for which there were too many open files"},
	};
	size_t used = 0;

	why[0] = '\0';
	for (size_t i = 0; i < sizeof(reasons) / sizeof(*reasons); i++) {
		if (!reasons[i].n)
			continue;
		used += (size_t)snprintf(why + used, STAT_ERROR_MAX - used, "%s%s (%zu)", used ? ", " : "",
			reasons[i].what, reasons[i].n);
	}
	return used > 0;
}
