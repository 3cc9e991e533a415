/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "config_file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "compat.h"
#include "config_regions.h"

#define MAIN_FILE   "gpupool.conf"
#define DIRECTORY   "gpupool.d"
#define FILE_SUFFIX ".conf"
#define USERS_FILE  "/etc/passwd"
#define SPACES      " \t\r"

enum {
	LINE_MAX_BYTES = 1280, /* with the NUL: a value has at most 1023 bytes */
	PATH_MAX_BYTES = 512,
	NAME_BYTES = 64,
	FILES_MAX = 64, /* of DIRECTORY; more are a problem, not a surprise */
	LINES_MAX = 10000,
};

/* A file of lines, read without an allocation. */
struct reader {
	int fd;
	size_t at, length;
	char buffer[1024], line[LINE_MAX_BYTES];
};

/* Too large for the stacks of some threads. The settings are read by one thread at a time. */
static struct reader file, users;
static char names[FILES_MAX][NAME_BYTES];

/* Reads a line, without its end. Returns its length, which may be larger than what fits; -1 at the end. */
static long read_line(struct reader *reader)
{
	char *text = reader->line;
	long n = 0;

	for (;;) {
		char c;

		if (reader->at == reader->length) {
			ssize_t got = read(reader->fd, reader->buffer, sizeof(reader->buffer));

			if (got <= 0 && !n)
				return -1;
			if (got <= 0)
				break;
			reader->at = 0;
			reader->length = (size_t)got;
		}
		c = reader->buffer[reader->at++];
		if (c == '\n')
			break;
		if (n + 1 < LINE_MAX_BYTES)
			text[n] = c ? c : '?';
		n++;
	}
	text[n < LINE_MAX_BYTES ? n : LINE_MAX_BYTES - 1] = '\0';
	return n;
}

static void begin(struct reader *reader, int fd)
{
	reader->fd = fd;
	reader->at = reader->length = 0;
}

static char *trim(char *text)
{
	size_t length;

	text += strspn(text, SPACES);
	length = strlen(text);
	while (length && strchr(SPACES, text[length - 1]))
		length--;
	text[length] = '\0';
	return text;
}

/* Finds the name of a user in the file alone: other sources of names would load libraries into the program. */
static bool is_user_by_file(uid_t uid, const char *name)
{
	size_t length = strlen(name);
	bool is_found = false;

	begin(&users, open(USERS_FILE, O_RDONLY | O_CLOEXEC));
	if (users.fd < 0)
		return false;
	while (!is_found && read_line(&users) >= 0) {
		const char *line = users.line;
		const char *password = strncmp(line, name, length) == 0 && line[length] == ':' ? line + length + 1 : "";
		const char *number = strchr(password, ':');
		char *end;

		is_found = number && strtoull(number + 1, &end, 10) == uid && *end == ':' && end > number + 1;
	}
	close(users.fd);
	return is_found;
}

static bool is_user(const struct gp_config_process *process, const char *name)
{
	char *end;
	unsigned long long number = strtoull(name, &end, 10);

	if (*name >= '0' && *name <= '9' && !*end)
		return number == process->uid;
	return is_user_by_file(process->uid, name) || (process->user && strcmp(process->user, name) == 0);
}

struct parse {
	const struct gp_config_process *process;
	const struct gp_config_lines *lines;
	const char *path;
	unsigned line;
	bool is_for_process; /* the section of the line */
};

static void report(const struct parse *parse, const char *text, const char *why, const char *next)
{
	char origin[PATH_MAX_BYTES + 16];

	snprintf(origin, sizeof(origin), "%s:%u", parse->path, parse->line);
	parse->lines->problem(parse->lines->arg, origin, text, why, next);
}

/* Reads "[user NAME]" and the like. The lines of a section that cannot be read are ignored. */
static void begin_section(struct parse *parse, char *text)
{
	static const char next[] = "use [user NAME], [job PATTERN] or [all]";
	size_t length = strlen(text);
	char *word, *value;

	parse->is_for_process = false;
	if (text[length - 1] != ']') {
		report(parse, text, "has no ] at its end", next);
		return;
	}
	text[length - 1] = '\0';
	word = trim(text + 1);
	value = word + strcspn(word, SPACES);
	if (*value)
		*value++ = '\0';
	value = trim(value);
	if (strcmp(word, "all") == 0 && !*value)
		parse->is_for_process = true;
	else if (strcmp(word, "user") == 0 && *value)
		parse->is_for_process = is_user(parse->process, value);
	else if (strcmp(word, "job") == 0 && *value)
		parse->is_for_process = parse->process->job && gp_region_pattern_matches(value, parse->process->job);
	else
		report(parse, word, "is not a section, or lacks its name", next);
}

static void take_line(struct parse *parse, char *text, bool is_cut)
{
	char origin[PATH_MAX_BYTES + 16], *equals, *name, *value;

	text = trim(text);
	if (!*text || *text == '#' || *text == ';')
		return;
	if (is_cut) {
		report(parse, text, "is longer than 1279 characters", NULL);
		/* The lines below it are of a section that is not known. */
		parse->is_for_process = parse->is_for_process && *text != '[';
		return;
	}
	if (*text == '[') {
		begin_section(parse, text);
		return;
	}
	if (!parse->is_for_process)
		return;
	equals = strchr(text, '=');
	if (!equals || equals == text) {
		report(parse, text, "is not of the form NAME=value", NULL);
		return;
	}
	*equals = '\0';
	name = trim(text);
	value = trim(equals + 1);
	snprintf(origin, sizeof(origin), "%s:%u", parse->path, parse->line);
	parse->lines->setting(parse->lines->arg, origin, name, value);
}

/* Returns why a file or directory is not trusted, or NULL. */
static const char *distrust(const struct statx *st, bool is_default)
{
	if (st->stx_uid != 0 && (is_default || st->stx_uid != geteuid()))
		return is_default ? "does not belong to root" : "belongs neither to root nor to this user";
	if (st->stx_mode & (S_IWGRP | S_IWOTH))
		return "can be written to by other users";
	return NULL;
}

static void refuse_file(const struct gp_config_lines *lines, const char *path, const char *why)
{
	lines->problem(lines->arg, path, NULL, why, NULL);
}

/* Opens a file or directory, and checks it. Returns -1 if it is missing, or refused with a report. */
static int open_trusted(int at_fd, const char *name, int flags, mode_t type, const char *path, bool is_default,
	const struct gp_config_lines *lines)
{
	int fd = openat(at_fd, name, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK | flags);
	const char *why = NULL;
	struct statx st;

	if (fd < 0) {
		/* Where a sandbox or a limit forbids to open files, only one that is there is worth a message. */
		if (!statx(at_fd, name, 0, STATX_TYPE, &st))
			refuse_file(lines, path, "cannot be read");
		return -1;
	}
	if (statx(fd, "", AT_EMPTY_PATH, STATX_TYPE | STATX_MODE | STATX_UID, &st) || (st.stx_mode & S_IFMT) != type)
		why = type == S_IFDIR ? "is not a directory" : "is not a regular file";
	else
		why = distrust(&st, is_default);
	if (!why)
		return fd;
	refuse_file(lines, path, why);
	close(fd);
	return -1;
}

static void read_file(int at_fd, const char *name, const char *path, bool is_default,
	const struct gp_config_process *process, const struct gp_config_lines *lines)
{
	struct parse parse = {.process = process, .lines = lines, .path = path, .is_for_process = true};
	long length;

	begin(&file, open_trusted(at_fd, name, 0, S_IFREG, path, is_default, lines));
	if (file.fd < 0)
		return;
	while (parse.line < LINES_MAX && (length = read_line(&file)) >= 0) {
		parse.line++;
		take_line(&parse, file.line, length >= LINE_MAX_BYTES);
	}
	if (parse.line == LINES_MAX && read_line(&file) >= 0)
		refuse_file(lines, path, "has more than 10000 lines: the rest cannot be read");
	close(file.fd);
}

static int compare(const void *a, const void *b)
{
	return strcmp(a, b);
}

static bool is_file_name(const char *name)
{
	size_t length = strlen(name), suffix = strlen(FILE_SUFFIX);

	return *name != '.' && length > suffix && strcmp(name + length - suffix, FILE_SUFFIX) == 0;
}

static void read_directory(
	const char *path, bool is_default, const struct gp_config_process *process, const struct gp_config_lines *lines)
{
	char one[PATH_MAX_BYTES + NAME_BYTES + 1];
	int fd = open_trusted(AT_FDCWD, path, O_DIRECTORY, S_IFDIR, path, is_default, lines);
	const struct dirent *entry;
	size_t n = 0;
	DIR *dir;

	if (fd < 0)
		return;
	dir = fdopendir(fd);
	if (!dir) {
		close(fd);
		return;
	}
	while ((entry = readdir(dir))) {
		if (!is_file_name(entry->d_name))
			continue;
		if (n == FILES_MAX || strlen(entry->d_name) >= NAME_BYTES) {
			snprintf(one, sizeof(one), "%s/%.*s", path, NAME_BYTES - 1, entry->d_name);
			refuse_file(
				lines, one, n == FILES_MAX ? "is one of more than 64 files" : "has too long a name");
			continue;
		}
		strcpy(names[n++], entry->d_name);
	}
	qsort(names, n, sizeof(names[0]), compare);
	for (size_t i = 0; i < n; i++) {
		snprintf(one, sizeof(one), "%s/%s", path, names[i]);
		read_file(dirfd(dir), names[i], one, is_default, process, lines);
	}
	closedir(dir);
}

/* A sandbox that forbids the question has no answer worth a message. */
static bool is_missing(const char *directory)
{
	struct statx st;

	if (statx(AT_FDCWD, directory, 0, STATX_TYPE, &st))
		return errno == ENOENT || errno == ENOTDIR;
	return !S_ISDIR(st.stx_mode);
}

void gp_config_files_read(const char *directory, bool is_default, const struct gp_config_process *process,
	const struct gp_config_lines *lines)
{
	int saved_errno = errno, cancel_state;
	char path[PATH_MAX_BYTES];

	/* A process of musl may lack the function (compat.h). The library does nothing there, and needs no settings. */
	if (!statx)
		return;
	/* The caller holds a lock. */
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state);
	if (!is_default && is_missing(directory))
		refuse_file(lines, directory, "is not a directory");
	if (snprintf(path, sizeof(path), "%s/" MAIN_FILE, directory) < (int)sizeof(path))
		read_file(AT_FDCWD, path, path, is_default, process, lines);
	if (snprintf(path, sizeof(path), "%s/" DIRECTORY, directory) < (int)sizeof(path))
		read_directory(path, is_default, process, lines);
	pthread_setcancelstate(cancel_state, NULL);
	errno = saved_errno;
}
