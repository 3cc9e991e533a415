/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "stat_dirs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/counter_page.h"
#include "common/oom_name.h"

/* Other users may be hostile. A user's own sockets may be left over from thousands of processes that were killed. */
enum {
	OWN_SOCKETS_MAX = 32768,
	FOREIGN_SOCKETS_MAX = 1024,      /* per directory */
	ALL_FOREIGN_SOCKETS_MAX = 16384, /* in all directories */
	FOREIGN_DIRS_MAX = 4096,         /* with sockets */
	FOREIGN_ENTRIES_MAX = 16384,     /* per directory, of sockets and other files */
};

static bool is_known(const struct stat_survey *survey, const struct stat *st)
{
	for (size_t i = 0; i < survey->n_dirs; i++)
		if (survey->dirs[i].device == st->st_dev && survey->dirs[i].inode == st->st_ino)
			return true;
	return false;
}

/* The array grows by powers of two. */
void stat_dirs_add_process(struct stat_survey *survey, const struct stat_process *process)
{
	if ((survey->n_processes & (survey->n_processes - 1)) == 0)
		survey->processes = stat_alloc(reallocarray(
			survey->processes, survey->n_processes ? 2 * survey->n_processes : 1, sizeof(*process)));
	survey->processes[survey->n_processes++] = *process;
	survey->n_foreign += process->uid != geteuid();
}

size_t stat_dirs_room(const struct stat_survey *survey, uid_t uid)
{
	size_t left = ALL_FOREIGN_SOCKETS_MAX - survey->n_foreign;

	if (uid == geteuid())
		return OWN_SOCKETS_MAX;
	return left < FOREIGN_SOCKETS_MAX ? left : FOREIGN_SOCKETS_MAX;
}

static void add_process(struct stat_survey *survey, const char *name, uid_t uid)
{
	struct stat_process process = {.dir = survey->n_dirs, .uid = uid, .client = {.fd = -1}};

	if (!gp_ctl_name_parse(name, &process.pid, &process.start_ticks))
		return;
	strcpy(process.name, name);
	stat_dirs_add_process(survey, &process);
}

/* Returns true if a file may be what a process that has ended has left: its report, or its counter page. */
static bool is_left(const char *name)
{
	uint64_t start_ticks;
	pid_t pid;

	return gp_oom_name_parse(name, &pid, &start_ticks) || gp_page_name_parse(name, &pid, &start_ticks);
}

/*
 * Adds the processes whose sockets are in an open directory, which will be the next one of the survey. Returns true if
 * the directory also has files of processes that have ended.
 */
static bool list(struct stat_survey *survey, int dir_fd, uid_t uid)
{
	int fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *entries = fd < 0 ? NULL : fdopendir(fd);
	size_t first = survey->n_processes, n_max = stat_dirs_room(survey, uid);
	size_t n_entries = uid == geteuid() ? SIZE_MAX : FOREIGN_ENTRIES_MAX;
	const struct dirent *entry;
	bool has_left = false;

	if (!entries) {
		survey->missed.n_dirs += errno == EMFILE || errno == ENFILE;
		if (fd >= 0)
			close(fd);
		return false;
	}
	while ((entry = readdir(entries)) != NULL && survey->n_processes - first < n_max && n_entries--) {
		add_process(survey, entry->d_name, uid);
		has_left |= is_left(entry->d_name);
	}
	survey->missed.n_sockets += entry != NULL;
	closedir(entries);
	return has_left;
}

/* Adds a directory of that owner if it has such files. It is closed: there may be more directories than descriptors. */
static void add(struct stat_survey *survey, const char *path, const uid_t *owner)
{
	size_t n_before = survey->n_processes;
	struct stat_dir dir = {.fd = -1};
	bool has_left = false;
	struct stat st;
	int fd;

	if (strlen(path) >= sizeof(dir.path) || lstat(path, &st) != 0)
		return;
	if ((geteuid() != 0 && st.st_uid != geteuid()) || (owner && st.st_uid != *owner))
		return;
	dir.uid = st.st_uid;
	fd = gp_ctl_dir_open(path, dir.uid, false);
	if (fd < 0) {
		survey->missed.n_dirs += fd == -EMFILE || fd == -ENFILE;
		return;
	}
	if (fstat(fd, &st) == 0 && !is_known(survey, &st)) {
		strcpy(dir.path, path);
		dir.device = st.st_dev;
		dir.inode = st.st_ino;
		has_left = list(survey, fd, dir.uid);
	}
	close(fd);
	if (survey->n_processes == n_before && !has_left)
		return;
	survey->dirs = stat_alloc(reallocarray(survey->dirs, survey->n_dirs + 1, sizeof(*survey->dirs)));
	survey->dirs[survey->n_dirs++] = dir;
}

int stat_dir_open(struct stat_dir *dir)
{
	struct stat st;
	int fd = gp_ctl_dir_open(dir->path, dir->uid, false);

	if (fd < 0)
		return fd;
	if (fstat(fd, &st) != 0 || st.st_dev != dir->device || st.st_ino != dir->inode) {
		close(fd);
		return -ESTALE;
	}
	dir->fd = fd;
	return 0;
}

static struct gp_ctl_dirs caller_dirs(void)
{
	return (struct gp_ctl_dirs){
		.runtime_dir = getenv("GPUPOOL_RUNTIME_DIR"),
		.xdg_runtime_dir = getenv("XDG_RUNTIME_DIR"),
		.tmp_dir = getenv("TMPDIR"),
		.uid = geteuid(),
		.run_dir = gp_ctl_run_dir(GP_CTL_RUN_DIR, geteuid()),
	};
}

void stat_dirs_add(struct stat_survey *survey, const struct gp_ctl_dirs *dirs, const char *prefix, const uid_t *owner)
{
	char path[GP_CTL_PATH_MAX], whole[GP_CTL_PATH_MAX + 64];
	int error;

	for (unsigned nth = 0; (error = gp_ctl_dir(dirs, nth, path, sizeof(path))) != -ERANGE; nth++) {
		if (error)
			continue;
		snprintf(whole, sizeof(whole), "%s%s", prefix, path);
		add(survey, whole, owner);
	}
}

bool stat_dirs_is_named(void)
{
	struct gp_ctl_dirs dirs = caller_dirs();
	char path[GP_CTL_PATH_MAX];
	int fd;

	if (gp_ctl_dir(&dirs, 0, path, sizeof(path)))
		return false;
	fd = gp_ctl_dir_open(path, dirs.uid, false);
	if (fd >= 0)
		close(fd);
	return fd >= 0;
}

void stat_dirs_of_caller(struct stat_survey *survey)
{
	struct gp_ctl_dirs dirs = caller_dirs();
	char path[GP_CTL_PATH_MAX];

	if (stat_dirs_is_named() && !gp_ctl_dir(&dirs, 0, path, sizeof(path)))
		add(survey, path, NULL);
	else
		stat_dirs_add(survey, &dirs, "", NULL);
}

void stat_dirs_describe(char *text, size_t size)
{
	struct gp_ctl_dirs dirs = caller_dirs();
	char path[GP_CTL_PATH_MAX];
	size_t length = 0;
	int error;

	text[0] = '\0';
	for (unsigned nth = 0; (error = gp_ctl_dir(&dirs, nth, path, sizeof(path))) != -ERANGE; nth++) {
		if (error || length >= size)
			continue;
		length += (size_t)snprintf(text + length, size - length, "%s%s", length ? ", " : "", path);
	}
}

/* In /tmp, where every user can make directories, the name must have the number of the directory's owner. */
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

static uint64_t number_in(const char *path)
{
	return strtoull(path + strcspn(path, "0123456789"), NULL, 10);
}

static int compare_numbers(const void *a, const void *b)
{
	uint64_t one = number_in(*(char *const *)a), other = number_in(*(char *const *)b);

	return (one > other) - (one < other);
}

/*
 * Adds the directories of logged-in users first, then the others by ascending user number. The order matters because
 * the number of directories is bounded: a user may make a directory for each of many subordinate ids, but those have
 * high numbers, and no login.
 */
void stat_dirs_of_all_users(struct stat_survey *survey)
{
	static const char *const patterns[] = {GP_CTL_RUN_DIR "/[0-9]*", "/run/user/*/gpupool", "/tmp/gpupool-[0-9]*"};
	glob_t found;

	if (caller_dirs().runtime_dir)
		return;
	for (size_t i = 0; i < sizeof(patterns) / sizeof(patterns[0]); i++) {
		if (glob(patterns[i], GLOB_NOSORT, NULL, &found) != 0)
			continue;
		qsort(found.gl_pathv, found.gl_pathc, sizeof(*found.gl_pathv), compare_numbers);
		for (size_t k = 0; k < found.gl_pathc && survey->n_dirs < FOREIGN_DIRS_MAX; k++)
			if (is_of_its_owner(found.gl_pathv[k]))
				add(survey, found.gl_pathv[k], NULL);
		survey->missed.n_sockets += survey->n_dirs == FOREIGN_DIRS_MAX;
		globfree(&found);
	}
}

void stat_dirs_again(struct stat_survey *survey, const struct stat_survey *old)
{
	for (size_t i = 0; i < old->n_dirs; i++)
		if (!old->dirs[i].is_abstract)
			add(survey, old->dirs[i].path, &old->dirs[i].uid);
}
