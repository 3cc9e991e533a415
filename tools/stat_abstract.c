/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "stat_abstract.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shim/ctl_abstract.h"

enum {
	MAX_PROCESSES = 4096, /* of all users: any user can take such names */
	MAX_USERS = 256,
};

struct search {
	struct stat_survey *survey;
	size_t n_processes, n_users;
};

/* The index of the user's entry among the directories; a new one if there is none, or SIZE_MAX if there is no room. */
static size_t find_user(struct search *search, uid_t uid)
{
	struct stat_survey *survey = search->survey;
	struct stat_dir dir = {.fd = GP_CTL_NO_DIR, .uid = uid, .device = (dev_t)-1, .inode = uid};

	for (size_t i = 0; i < survey->n_dirs; i++)
		if (survey->dirs[i].fd == GP_CTL_NO_DIR && survey->dirs[i].uid == uid)
			return i;
	if (search->n_users++ == MAX_USERS)
		return SIZE_MAX;
	snprintf(dir.path, sizeof(dir.path), "@gpupool-%u", (unsigned)uid);
	survey->dirs = stat_alloc(reallocarray(survey->dirs, survey->n_dirs + 1, sizeof(dir)));
	survey->dirs[survey->n_dirs] = dir;
	return survey->n_dirs++;
}

static bool add(void *arg, const struct gp_ctl_abstract *found)
{
	struct search *search = arg;
	struct stat_survey *survey = search->survey;
	struct stat_process process = {.pid = found->pid, .start_ticks = found->start_ticks, .uid = found->uid};

	if (geteuid() != 0 && found->uid != geteuid())
		return true;
	process.dir = search->n_processes < MAX_PROCESSES ? find_user(search, found->uid) : SIZE_MAX;
	if (process.dir == SIZE_MAX) {
		survey->is_incomplete = true;
		return search->n_processes < MAX_PROCESSES;
	}
	strcpy(process.name, found->name);
	survey->processes =
		stat_alloc(reallocarray(survey->processes, survey->n_processes + 1, sizeof(process)));
	survey->processes[survey->n_processes++] = process;
	search->n_processes++;
	return true;
}

static bool is_directory_named(void)
{
	const char *named = getenv("GPUPOOL_RUNTIME_DIR");
	int fd = named && *named ? gp_ctl_dir_open(named, geteuid(), false) : -ENOENT;

	if (fd >= 0)
		close(fd);
	return fd >= 0;
}

void stat_abstract_list(struct stat_survey *survey)
{
	struct search search = {.survey = survey};

	if (!is_directory_named())
		gp_ctl_abstract_each(add, &search);
}

bool stat_abstract_is_false(const struct stat_survey *survey, const struct stat_process *process)
{
	return survey->dirs[process->dir].fd == GP_CTL_NO_DIR && process->client.error == -EPERM;
}
