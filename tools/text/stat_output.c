/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * The output goes to a new file in the same directory, which is renamed at the end. Some files cannot be replaced that
 * way and are written in place: devices and pipes, files with several hard links (a rename would separate them), and
 * files in a directory that cannot be written.
 */

#include "stat_output.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

enum { TRIES = 8 };

static char target[PATH_MAX];   /* without symbolic links */
static char new_path[PATH_MAX]; /* "": the file is written in place */

static bool is_replaceable(const struct stat *old)
{
	return S_ISREG(old->st_mode) && old->st_nlink == 1 && access(target, W_OK) == 0;
}

/* Gives the new file the owner and permissions of the old one, as if that had been overwritten. */
static bool copy_owner_and_mode(int fd, const struct stat *old)
{
	if (old->st_uid == geteuid() && old->st_gid == getegid())
		return fchmod(fd, old->st_mode & 0777) == 0;
	return fchown(fd, old->st_uid, old->st_gid) == 0 && fchmod(fd, old->st_mode & 0777) == 0;
}

/* Creates the new file beside the target. Returns its descriptor, or -1 if the target must be written in place. */
static int open_new_file(const struct stat *old)
{
	int fd = -1;

	for (int i = 0; i < TRIES && fd < 0; i++) {
		uint32_t number;

		if (getrandom(&number, sizeof(number), 0) != sizeof(number) ||
			(size_t)snprintf(new_path, sizeof(new_path), "%s.%08x.new", target, number) >= sizeof(new_path))
			break;
		fd = open(new_path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
		if (fd < 0 && errno != EEXIST)
			break;
	}
	if (fd >= 0 && (!old || copy_owner_and_mode(fd, old)))
		return fd;
	if (fd >= 0) {
		(void)unlink(new_path);
		close(fd);
	}
	new_path[0] = '\0';
	return -1;
}

FILE *stat_output_open(const char *path)
{
	struct stat old;
	bool exists = stat(path, &old) == 0;
	int fd = -1;

	new_path[0] = target[0] = '\0';
	if (exists) {
		if (!realpath(path, target))
			return NULL;
		if (is_replaceable(&old))
			fd = open_new_file(&old);
	} else if (strlen(path) < sizeof(target)) {
		/* A symbolic link to a missing file is written through. */
		strcpy(target, path);
		if (lstat(path, &old) != 0)
			fd = open_new_file(NULL);
	}
	return fd < 0 ? fopen(path, "we") : fdopen(fd, "w");
}

int stat_output_flush(FILE *out)
{
	if (fflush(out) == 0 && !ferror(out))
		return 0;
	return errno ? -errno : -EIO; /* of the last call that failed, usually the write */
}

/* Removes the incomplete file. */
static void remove_incomplete(FILE *out)
{
	struct stat st;

	if (*new_path)
		(void)unlink(new_path);
	else if (*target && fstat(fileno(out), &st) == 0 && S_ISREG(st.st_mode))
		(void)unlink(target);
}

int stat_output_close(FILE *out, bool is_good)
{
	int error = stat_output_flush(out);

	if (!error && is_good && *new_path && rename(new_path, target) != 0)
		error = -errno;
	if (error || !is_good)
		remove_incomplete(out);
	if (fclose(out) != 0 && !error)
		error = -errno;
	return error;
}
