/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "stat_places.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "stat_environ.h"

enum { MAX_PROCESSES = 4096 }; /* of one directory: its owner may be hostile */

static bool is_known(const struct stat_survey *survey, const struct stat *st)
{
	for (size_t i = 0; i < survey->n_dirs; i++)
		if (survey->dirs[i].device == st->st_dev && survey->dirs[i].inode == st->st_ino)
			return true;
	return false;
}

static void add(struct stat_survey *survey, const char *path)
{
	struct stat_dir dir;
	struct stat st;

	if (strlen(path) >= sizeof(dir.path) || lstat(path, &st) != 0)
		return;
	if (geteuid() != 0 && st.st_uid != geteuid())
		return;
	dir.uid = st.st_uid;
	dir.fd = gp_ctl_dir_open(path, dir.uid, false);
	if (dir.fd < 0)
		return;
	if (fstat(dir.fd, &st) != 0 || is_known(survey, &st)) {
		close(dir.fd);
		return;
	}
	strcpy(dir.path, path);
	dir.device = st.st_dev;
	dir.inode = st.st_ino;
	survey->dirs =
		stat_alloc(reallocarray(survey->dirs, survey->n_dirs + 1, sizeof(*survey->dirs)));
	survey->dirs[survey->n_dirs++] = dir;
}

static struct gp_ctl_places own_places(void)
{
	return (struct gp_ctl_places){
		.runtime_dir = getenv("GPUPOOL_RUNTIME_DIR"),
		.xdg_runtime_dir = getenv("XDG_RUNTIME_DIR"),
		.tmp_dir = getenv("TMPDIR"),
		.uid = geteuid(),
	};
}

static void add_places(
	struct stat_survey *survey, const struct gp_ctl_places *places, const char *prefix)
{
	char path[GP_CTL_PATH_MAX], whole[GP_CTL_PATH_MAX + 64];
	int error;

	for (unsigned nth = 0; (error = gp_ctl_place(places, nth, path, sizeof(path))) != -ERANGE;
		nth++) {
		if (error)
			continue;
		snprintf(whole, sizeof(whole), "%s%s", prefix, path);
		add(survey, whole);
	}
}

void stat_places_own(struct stat_survey *survey)
{
	struct gp_ctl_places places = own_places();

	add_places(survey, &places, "");
}

void stat_places_describe(char *text, size_t size)
{
	struct gp_ctl_places places = own_places();
	char path[GP_CTL_PATH_MAX];
	size_t length = 0;
	int error;

	text[0] = '\0';
	for (unsigned nth = 0; (error = gp_ctl_place(&places, nth, path, sizeof(path))) != -ERANGE;
		nth++) {
		if (error || length >= size)
			continue;
		length += (size_t)snprintf(
			text + length, size - length, "%s%s", length ? ", " : "", path);
	}
}

/*
 * Where everybody may make directories, one that belongs to a user must have the user's number: else somebody could
 * make more of them than there are descriptors for.
 */
static bool is_of_its_owner(const char *path)
{
	char own[64];
	struct stat st;

	if (strncmp(path, "/tmp/", 5) != 0)
		return true;
	if (lstat(path, &st) != 0)
		return false;
	snprintf(own, sizeof(own), "/tmp/gpupool-%u", (unsigned)st.st_uid);
	return strcmp(path, own) == 0;
}

void stat_places_all_users(struct stat_survey *survey)
{
	static const char *const patterns[] = {"/run/user/*/gpupool", "/tmp/gpupool-[0-9]*"};
	glob_t found;

	if (own_places().runtime_dir)
		return; /* whoever names a directory means that one */
	for (size_t i = 0; i < sizeof(patterns) / sizeof(patterns[0]); i++) {
		if (glob(patterns[i], GLOB_NOSORT, NULL, &found) != 0)
			continue;
		for (size_t k = 0; k < found.gl_pathc; k++)
			if (is_of_its_owner(found.gl_pathv[k]))
				add(survey, found.gl_pathv[k]);
		globfree(&found);
	}
}

void stat_places_of_process(struct stat_survey *survey, pid_t pid)
{
	char *variables = stat_environ_read(pid), root[32];
	struct gp_ctl_places places;
	struct stat st;

	snprintf(root, sizeof(root), "/proc/%d", (int)pid);
	if (variables && stat(root, &st) == 0) {
		places = (struct gp_ctl_places){
			.runtime_dir = stat_environ_find(variables, "GPUPOOL_RUNTIME_DIR"),
			.xdg_runtime_dir = stat_environ_find(variables, "XDG_RUNTIME_DIR"),
			.tmp_dir = stat_environ_find(variables, "TMPDIR"),
			.uid = st.st_uid,
		};
		add_places(survey, &places, "");
		snprintf(root, sizeof(root), "/proc/%d/root", (int)pid);
		add_places(survey, &places, root);
	}
	free(variables);
}

static void add_process(struct stat_survey *survey, size_t dir, const char *name)
{
	struct stat_process process = {.dir = dir, .uid = survey->dirs[dir].uid};

	if (!gp_ctl_name_parse(name, &process.pid, &process.start_ticks))
		return;
	strcpy(process.name, name);
	survey->processes = stat_alloc(
		reallocarray(survey->processes, survey->n_processes + 1, sizeof(process)));
	survey->processes[survey->n_processes++] = process;
}

void stat_places_list(struct stat_survey *survey, size_t dir)
{
	int fd = openat(survey->dirs[dir].fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *entries = fd < 0 ? NULL : fdopendir(fd);
	size_t first = survey->n_processes;
	const struct dirent *entry;

	if (!entries) {
		if (fd >= 0)
			close(fd);
		return;
	}
	while ((entry = readdir(entries)) != NULL && survey->n_processes - first < MAX_PROCESSES)
		add_process(survey, dir, entry->d_name);
	survey->is_incomplete = survey->is_incomplete || entry;
	closedir(entries);
}
