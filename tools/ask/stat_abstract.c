/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "stat_abstract.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/ctl_abstract.h"
#include "stat_dirs.h"

/* Any user can bind such names, even with the number of another user in them, so the number of processes is bounded. */
enum { PROCESSES_MAX = 4096, USER_PROCESSES_MAX = 1024, USERS_MAX = 256 };

struct search {
	struct stat_survey *survey;
	size_t n_processes, n_users;
	struct {
		size_t dir, n_processes;
	} users[USERS_MAX];
};

/* Returns the index of the user, who is added if missing, or USERS_MAX if there is no room. */
static size_t find_user(struct search *search, uid_t uid)
{
	struct stat_survey *survey = search->survey;
	struct stat_dir dir = {.fd = GP_CTL_NO_DIR, .is_abstract = true, .uid = uid};
	size_t i;

	for (i = 0; i < search->n_users; i++)
		if (survey->dirs[search->users[i].dir].uid == uid)
			return i;
	if (i == USERS_MAX)
		return USERS_MAX;
	snprintf(dir.path, sizeof(dir.path), "@gpupool-%u", (unsigned)uid);
	survey->dirs = stat_alloc(reallocarray(survey->dirs, survey->n_dirs + 1, sizeof(dir)));
	survey->dirs[survey->n_dirs] = dir;
	search->users[i].dir = survey->n_dirs++;
	return search->n_users++;
}

static bool add(void *arg, const struct gp_ctl_abstract *found)
{
	struct search *search = arg;
	struct stat_survey *survey = search->survey;
	struct stat_process process = {
		.pid = found->pid, .start_ticks = found->start_ticks, .uid = found->uid, .client = {.fd = -1}};
	size_t user;

	if (geteuid() != 0 && found->uid != geteuid())
		return true;
	user = search->n_processes < PROCESSES_MAX ? find_user(search, found->uid) : USERS_MAX;
	if (user == USERS_MAX || search->users[user].n_processes == USER_PROCESSES_MAX ||
		!stat_dirs_room(survey, found->uid)) {
		survey->missed.n_sockets++;
		return search->n_processes < PROCESSES_MAX;
	}
	process.dir = search->users[user].dir;
	strcpy(process.name, found->name);
	stat_dirs_add_process(survey, &process);
	search->users[user].n_processes++;
	search->n_processes++;
	return true;
}

void stat_abstract_list(struct stat_survey *survey)
{
	struct search search = {.survey = survey};

	if (!stat_dirs_is_named())
		gp_ctl_abstract_each(add, &search);
}

bool stat_abstract_is_false(const struct stat_survey *survey, const struct stat_process *process)
{
	return survey->dirs[process->dir].is_abstract && process->client.error == -EPERM;
}
