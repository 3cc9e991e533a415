/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "stat_saved.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/oom_name.h"
#include "tools/ask/stat_dirs.h"
#include "tools/text/stat_spool.h"

enum { OOM_MAX = 8 << 20, LEAKS_MAX = 64 << 20, ENTRIES_MAX = 4096, SAVED_MAX = 256 };

/* Sets the age of the error as of now: the file has the age at the time of writing. */
static void update_age(json_t *reply)
{
	json_t *last = json_object_get(reply, "last");
	uint64_t then = stat_reply_u64_or_0(last, "time"), now = (uint64_t)time(NULL);

	json_object_set_new(reply, STAT_SAVED_KEY, json_true());
	if (json_is_object(last) && then)
		json_object_set_new(last, "age_ns",
			json_integer((json_int_t)(now > then ? (now - then) * UINT64_C(1000000000) : 0)));
}

static json_t *parse_oom(const char *text, size_t length, char error[static STAT_ERROR_MAX])
{
	json_t *reply = stat_reply_parse_saved(text, length, "oom", error);

	if (reply)
		update_age(reply);
	return reply;
}

/* Returns the size of the file and one byte more, so that reading that much meets the end of the file; at most max. */
static size_t buffer_size(FILE *file, size_t max)
{
	struct stat st;

	if (fstat(fileno(file), &st) || !S_ISREG(st.st_mode) || st.st_size >= (off_t)max)
		return max;
	return (size_t)st.st_size + 1;
}

/* Returns the text of a file of fewer than max bytes, which the caller frees, or NULL after a message. */
static char *read_file(const char *path, const char *name, size_t max, size_t *ret_length)
{
	FILE *file = fopen(path, "re");
	size_t room = file ? buffer_size(file, max) : 0;
	char *text = file ? stat_alloc(malloc(room)) : NULL;
	size_t n = file ? fread(text, 1, room, file) : 0;
	bool is_good = file && !ferror(file) && n < max;

	if (!file || ferror(file))
		stat_error(NULL, "%s cannot be read: %s.", name, strerror(errno));
	else if (!is_good)
		stat_error(NULL, "%s is too long to be an answer.", name);
	if (file)
		fclose(file);
	if (!is_good) {
		free(text);
		return NULL;
	}
	*ret_length = n;
	return text;
}

json_t *stat_saved_read_leaks(const char *path, const char *name)
{
	char error[STAT_ERROR_MAX];
	size_t length;
	char *text = read_file(path, name, LEAKS_MAX, &length);
	json_t *reply = text ? stat_reply_parse_saved(text, length, "leaks", error) : NULL;

	if (text && !reply)
		stat_error("save one with: gpupool-stat leaks --json PID >FILE", "%s %s.", name, error);
	free(text);
	return reply;
}

json_t *stat_saved_read_oom(const char *name)
{
	const char *path = stat_spool(name);
	char error[STAT_ERROR_MAX];
	size_t length;
	char *text = path ? read_file(path, name, OOM_MAX, &length) : NULL;
	json_t *reply = text ? parse_oom(text, length, error) : NULL;

	if (text && !reply)
		stat_error("to save one: GPUPOOL_OOM_FILE=FILE, or gpupool-stat oom --json PID >FILE", "%s %s.", name,
			error);
	free(text);
	return reply;
}

/* Returns the text of a file in a directory, or NULL. */
static char *read_in(const struct stat_dir *dir, const char *name, struct stat *ret_st)
{
	int fd = openat(dir->fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	char *text = NULL;
	ssize_t n = -1;

	if (fd < 0)
		return NULL;
	if (fstat(fd, ret_st) == 0 && S_ISREG(ret_st->st_mode) && ret_st->st_uid == dir->uid &&
		ret_st->st_size <= GP_OOM_FILE_MAX) {
		text = stat_alloc(malloc(GP_OOM_FILE_MAX + 1));
		n = read(fd, text, GP_OOM_FILE_MAX);
	}
	close(fd);
	if (n < 0) {
		free(text);
		return NULL;
	}
	text[n] = '\0';
	return text;
}

static bool is_running(const struct stat_process *process)
{
	uint64_t start_ticks;
	char state;

	return gp_ctl_process_stat(process->pid, &start_ticks, &state) == 0 && state != 'Z' &&
	       start_ticks == process->start_ticks;
}

const char *stat_saved_job(const json_t *reply)
{
	const char *job = json_string_value(json_object_get(json_object_get(reply, "labels"), "job"));

	return job ? job : "";
}

/* The reports to find: of a process or, if pid is 0, of a job or, if job is NULL, of all ended processes. */
struct wanted {
	pid_t pid;
	const char *job;
};

/* Reads a report. Returns false if it is not one that is looked for, or cannot be read. */
static bool read_report(struct stat_saved *saved, const struct stat_survey *survey, size_t dir, const char *name,
	const struct wanted *wanted)
{
	struct stat_process process = {.dir = dir, .uid = survey->dirs[dir].uid, .client.fd = -1};
	char error[STAT_ERROR_MAX], *text;
	struct stat st;

	if (!gp_oom_name_parse(name, &process.pid, &process.start_ticks) || (wanted->pid && process.pid != wanted->pid))
		return false;
	*saved = (struct stat_saved){.is_running = is_running(&process)};
	if (!wanted->pid && !wanted->job && saved->is_running)
		return false;
	text = read_in(&survey->dirs[dir], name, &st);
	if (!text)
		return false;
	strcpy(process.name, name);
	process.reply = parse_oom(text, strlen(text), error);
	free(text);
	saved->process = process;
	saved->written = st.st_mtime;
	if (process.reply && wanted->job && strcmp(stat_saved_job(process.reply), wanted->job) != 0) {
		json_decref(process.reply);
		return false;
	}
	return process.reply != NULL;
}

static void read_reports_in(
	struct stat_saved *list, size_t *n, const struct stat_survey *survey, size_t dir, const struct wanted *wanted)
{
	int fd = openat(survey->dirs[dir].fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *entries = fd < 0 ? NULL : fdopendir(fd);
	const struct dirent *entry;

	if (!entries) {
		if (fd >= 0)
			close(fd);
		return;
	}
	for (int i = 0; i < ENTRIES_MAX && *n < SAVED_MAX && (entry = readdir(entries)); i++)
		*n += read_report(&list[*n], survey, dir, entry->d_name, wanted);
	closedir(entries);
}

static int compare(const void *a, const void *b)
{
	const struct stat_saved *one = a, *other = b;

	if (one->written != other->written)
		return one->written < other->written ? 1 : -1;
	/* If two reports are of the same second, that of the process that started later comes first. */
	return (one->process.start_ticks < other->process.start_ticks) -
	       (one->process.start_ticks > other->process.start_ticks);
}

static size_t find(struct stat_survey *survey, const struct wanted *wanted, struct stat_saved **ret_list)
{
	struct stat_saved *list = stat_alloc(calloc(SAVED_MAX, sizeof(*list)));
	size_t n = 0;

	for (size_t i = 0; i < survey->n_dirs; i++) {
		struct stat_dir *dir = &survey->dirs[i];

		if (dir->is_abstract || stat_dir_open(dir))
			continue;
		read_reports_in(list, &n, survey, i, wanted);
		close(dir->fd);
		dir->fd = -1;
	}
	if (n)
		qsort(list, n, sizeof(*list), compare);
	*ret_list = list;
	return n;
}

/* Keeps the report of the process that runs or else the newest one: another container may have the same process id. */
static void keep_one(struct stat_saved *list, size_t n)
{
	size_t kept = 0;

	while (kept < n && !list[kept].is_running)
		kept++;
	if (kept == n)
		kept = 0;
	for (size_t i = 0; i < n; i++)
		if (i != kept)
			json_decref(list[i].process.reply);
	list[0] = list[kept];
}

size_t stat_saved_find(struct stat_survey *survey, pid_t pid, struct stat_saved **ret_list)
{
	const struct wanted wanted = {.pid = pid};
	size_t n = find(survey, &wanted, ret_list);

	if (!pid || !n)
		return n;
	keep_one(*ret_list, n);
	return 1;
}

size_t stat_saved_find_job(struct stat_survey *survey, const char *job, struct stat_saved **ret_list)
{
	const struct wanted wanted = {.job = job};

	return find(survey, &wanted, ret_list);
}
