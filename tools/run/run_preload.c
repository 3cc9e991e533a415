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
#ifndef GPUPOOL_RELATIVE_LIBDIR
#error "GPUPOOL_RELATIVE_LIBDIR is the same folder relative to the prefix, or an empty string if it is outside"
#endif
#ifndef GPUPOOL_BINDIR_DEPTH
#error "GPUPOOL_BINDIR_DEPTH is the number of folders from the prefix to gpupool-run"
#endif

#define LIBRARY    "libgpupool.so"
#define HOOK       "own_pools.zip"
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

/* Returns NULL if no other user can replace the folder, or the reason for a message. */
static const char *find_untrusted_folder(const char *path, const struct stat *self)
{
	struct stat st;

	if (lstat(path, &st) < 0)
		return "cannot be checked";
	return S_ISDIR(st.st_mode) ? find_untrusted_user(&st, self) : "is not a directory";
}

/*
 * Returns NULL if no other user can have changed the library or a folder between it and the prefix, or else the reason.
 * Then *ret_which is the path that the reason is about; the caller frees it in both cases.
 */
static const char *find_untrusted(const char *library, size_t prefix_length, char **ret_which)
{
	char *which = format_text("%s", library);
	const char *why = NULL;
	struct stat self, st;

	*ret_which = which;
	if (stat("/proc/self/exe", &self) < 0)
		return "cannot be checked";
	for (char *slash = strchr(which + prefix_length + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		why = find_untrusted_folder(which, &self);
		if (why)
			return why;
		*slash = '/';
	}
	return stat(which, &st) < 0 ? "cannot be checked" : find_untrusted_user(&st, &self);
}

static bool is_same_file(const char *a, const char *b)
{
	struct stat a_stat, b_stat;

	return stat(a, &a_stat) == 0 && stat(b, &b_stat) == 0 && a_stat.st_ino == b_stat.st_ino &&
	       a_stat.st_dev == b_stat.st_dev;
}

/* A file that belongs to this program. */
struct own_file {
	const char *name;
	const char *build_folder; /* in a build tree, beside the folder of this program */
	const char *configured;   /* its path at the configured prefix */
	const char *next;         /* what to do if another user could have planted the file */
};

/* Returns the path of the file below this copy's prefix, or NULL if it is missing, untrusted, or the default. */
static char *find_beside(const char *prefix, const char *relative, const struct own_file *file)
{
	char *path = format_text("%s/%s/%s", prefix, relative, file->name);
	char *which = NULL;
	const char *why;

	if (access(path, F_OK) < 0)
		goto free_path;
	/* The configured path is used without these checks. */
	if (is_same_file(path, file->configured))
		goto free_path;
	why = find_untrusted(path, strlen(prefix), &which);
	if (why)
		run_warn(file->next, "%s is not used: %s %s.", path, which, why);
	free(which);
	if (!why)
		return path;
free_path:
	free(path);
	return NULL;
}

/* Cuts the program's name and `depth` folders off its path. False if the path is not known or has fewer. */
static bool find_prefix(int depth, char prefix[static PATH_MAX])
{
	ssize_t n = readlink("/proc/self/exe", prefix, PATH_MAX - 1);

	if (n < 0)
		return false;
	prefix[n] = '\0';
	for (int i = 0; i <= depth; i++)
		if (!cut_name(prefix))
			return false;
	return true;
}

static char *find_own_file(const struct own_file *file)
{
	char prefix[PATH_MAX];
	char *path = NULL;

	if (find_prefix(1, prefix))
		path = find_beside(prefix, file->build_folder, file);
	if (!path && *GPUPOOL_RELATIVE_LIBDIR && find_prefix(GPUPOOL_BINDIR_DEPTH, prefix))
		path = find_beside(prefix, GPUPOOL_RELATIVE_LIBDIR, file);
	return path ? path : format_text("%s", file->configured);
}

char *run_library_default(void)
{
	static const struct own_file library = {
		LIBRARY, "shim", GPUPOOL_LIBDIR "/" LIBRARY, "if you trust it, name it with --library=PATH."};

	return find_own_file(&library);
}

char *run_hook_default(void)
{
	static const struct own_file hook = {
		HOOK, "tools", GPUPOOL_LIBDIR "/" HOOK, "correct the owner and the mode, or install gpupool again."};

	return find_own_file(&hook);
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

char **run_environment_copy(void)
{
	size_t n = 0;
	char **copy;

	while (environ && environ[n])
		n++;
	copy = calloc(n + 1, sizeof(*copy));
	if (!copy)
		(void)or_die(NULL);
	if (n)
		memcpy(copy, environ, n * sizeof(*copy));
	return copy;
}

void run_environment_clean(char **environment, const char *library)
{
	static const char name[] = "LD_PRELOAD=";
	char **to = environment;

	for (char **from = environment; *from; from++) {
		char *value;

		*to = *from;
		if (strncmp(*from, name, strlen(name)) != 0) {
			to++;
			continue;
		}
		/* The library and a colon come before the other libraries. */
		value = run_preload_value(library, *from + strlen(name));
		if (value[strlen(library)])
			*to++ = format_text("%s%s", name, value + strlen(library) + 1);
		free(value);
	}
	*to = NULL;
}

char *run_asan_options(const char *before)
{
	static const char name[] = "verify_asan_link_order";

	if (!before || !*before)
		return format_text("%s=0", name);
	return strstr(before, name) ? format_text("%s", before) : format_text("%s:%s=0", before, name);
}
