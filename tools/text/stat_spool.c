/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "stat_spool.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "stat_say.h"

/* At most one file is copied. */
static FILE *copy;
static char copy_path[32];

/* Opens a file on disk, since recordings may be large; or one in memory, if /tmp is read-only. */
static FILE *open_copy(void)
{
	FILE *file = tmpfile();
	int fd;

	if (file)
		return file;
	fd = memfd_create("gpupool-stat", MFD_CLOEXEC);
	return fd < 0 ? NULL : fdopen(fd, "w+");
}

static bool copy_all(FILE *from, FILE *to)
{
	char buffer[1 << 16];
	size_t n;

	while ((n = fread(buffer, 1, sizeof(buffer), from)))
		if (fwrite(buffer, 1, n, to) != n)
			return false;
	return !ferror(from) && fflush(to) == 0;
}

const char *stat_spool(const char *name)
{
	const char *path = strcmp(name, "-") == 0 ? "/dev/stdin" : name;
	struct stat st;
	FILE *from;
	bool is_read;
	int error;

	/* If the path is not valid, the caller reports that when it opens the path. */
	if (stat(path, &st) || !S_ISFIFO(st.st_mode))
		return path;
	from = fopen(path, "re");
	copy = from ? open_copy() : NULL;
	is_read = copy && copy_all(from, copy);
	error = errno;
	if (from)
		fclose(from);
	if (!is_read) {
		stat_error(NULL, "cannot read %s: %s.", name, strerror(error));
		return NULL;
	}
	snprintf(copy_path, sizeof(copy_path), "/proc/self/fd/%d", fileno(copy));
	return copy_path;
}
