/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "run_preload.h"

#ifndef GPUPOOL_LIBDIR
#error "GPUPOOL_LIBDIR is the folder that libgpupool.so is installed in"
#endif

#define LIBRARY    "libgpupool.so"
#define SEPARATORS " :" /* of LD_PRELOAD */

static char *or_die(char *text)
{
	if (!text) {
		run_error(NULL, "out of memory.");
		exit(RUN_FAILED);
	}
	return text;
}

static char *format_text(const char *format, ...) __attribute__((format(printf, 1, 2)));
static char *format_text(const char *format, ...)
{
	va_list args;
	char *text;
	int n;

	va_start(args, format);
	n = vasprintf(&text, format, args);
	va_end(args);
	return or_die(n < 0 ? NULL : text);
}

/* Cuts the last name off a path. False if the path has no slash. */
static bool cut_name(char *path)
{
	char *slash = strrchr(path, '/');

	if (slash)
		*slash = '\0';
	return slash;
}

/*
 * Returns NULL if a file or directory can be changed only by users who can also change this program, or else the reason
 * for a message. If a copy of this program is in a directory that all users can write to, such as /tmp, another user
 * could plant a library beside it.
 */
static const char *find_untrusted_user(const struct stat *st, const struct stat *self)
{
	mode_t others = S_IWOTH;

	if (st->st_uid != self->st_uid && st->st_uid != 0)
		return "belongs to a user who is neither root nor the owner of gpupool-run";
	if (!(self->st_mode & S_IWGRP) || self->st_gid != st->st_gid)
		others |= S_IWGRP;
	return st->st_mode & others ? "can be written to by other users" : NULL;
}

/* True if there is a library of the same build tree in the directory, and no other user can have changed it. */
static bool is_trusted(const char *directory, const char *library)
{
	struct stat self, directory_stat, library_stat;
	const char *why, *which = directory;

	if (stat(library, &library_stat) < 0)
		return false;
	if (stat("/proc/self/exe", &self) < 0 || lstat(directory, &directory_stat) < 0)
		why = "cannot be checked";
	else if (!S_ISDIR(directory_stat.st_mode))
		why = "is not a directory";
	else
		why = find_untrusted_user(&directory_stat, &self);
	if (!why) {
		which = library;
		why = find_untrusted_user(&library_stat, &self);
	}
	if (!why)
		return true;
	run_warn("if you trust it, name it with --library=PATH.", "%s is not used: %s %s.", library, which, why);
	return false;
}

char *run_library_default(void)
{
	char self[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

	if (n > 0) {
		self[n] = '\0';
		if (cut_name(self) && cut_name(self)) {
			char *directory = format_text("%s/shim", self);
			char *path = format_text("%s/" LIBRARY, directory);
			bool is_taken = is_trusted(directory, path);

			free(directory);
			if (is_taken)
				return path;
			free(path);
		}
	}
	return format_text("%s", GPUPOOL_LIBDIR "/" LIBRARY);
}

char *run_library_absolute(const char *path)
{
	char directory[PATH_MAX];

	if (*path == '/' || !getcwd(directory, sizeof(directory)))
		return format_text("%s", path);
	return format_text("%s/%s", directory, path);
}

static enum run_status check_separators(const char *path)
{
	const char *separator = strpbrk(path, SEPARATORS);
	char *next;

	if (!separator)
		return RUN_OK;
	next = format_text(
		"make a link without it:  ln -s '%s' /tmp/" LIBRARY "  and use --library=/tmp/" LIBRARY, path);
	run_error(next, "cannot use %s: its path has a %s, which separates names in LD_PRELOAD.", path,
		*separator == ':' ? "colon" : "space");
	free(next);
	return RUN_FAILED;
}

enum run_status run_library_check(const char *path, struct run_elf *ret_elf)
{
	enum run_status status = check_separators(path);
	int fd;
	int r;

	if (status != RUN_OK)
		return status;
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0) {
		run_error("say where " LIBRARY " is with --library=PATH.", "cannot use %s: %s.", path, strerror(errno));
		return RUN_FAILED;
	}
	r = run_elf_read(fd, ret_elf);
	close(fd);
	if (r == 0 && ret_elf->type == ET_DYN)
		return RUN_OK;
	run_error("say where " LIBRARY " is with --library=PATH.", "cannot use %s: %s.", path,
		r == 0 || r == -ENOEXEC ? "it is not a shared library"
		: r == -EINVAL          ? "its headers are damaged"
					: strerror(-r));
	return RUN_FAILED;
}

static bool is_same_file(const char *a, const char *b)
{
	struct stat a_stat, b_stat;

	return stat(a, &a_stat) == 0 && stat(b, &b_stat) == 0 && a_stat.st_ino == b_stat.st_ino &&
	       a_stat.st_dev == b_stat.st_dev;
}

/* True for the library and for other copies of it: two copies in a process would take each other for the driver. */
static bool is_copy(const char *library, const char *entry)
{
	const char *slash = strrchr(entry, '/');

	if (!strcmp(entry, library) || is_same_file(entry, library))
		return true;
	if (strcmp(slash ? slash + 1 : entry, LIBRARY))
		return false;
	run_warn(NULL, "%s in LD_PRELOAD is another copy of the library; %s is used instead.", entry, library);
	return true;
}

char *run_preload_value(const char *library, const char *before)
{
	char *entries = format_text("%s", before ? before : "");
	char *value = format_text("%s", library);
	char *rest;

	for (char *entry = strtok_r(entries, SEPARATORS, &rest); entry; entry = strtok_r(NULL, SEPARATORS, &rest)) {
		if (is_copy(library, entry))
			continue;
		char *longer = format_text("%s:%s", value, entry);
		free(value);
		value = longer;
	}
	free(entries);
	return value;
}

char *run_asan_options(const char *before)
{
	static const char name[] = "verify_asan_link_order";

	if (!before || !*before)
		return format_text("%s=0", name);
	return strstr(before, name) ? format_text("%s", before) : format_text("%s:%s=0", before, name);
}
