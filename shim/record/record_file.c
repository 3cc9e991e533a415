/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * The file is opened and closed for each write: the program could close a descriptor that stayed open, and its next
 * file would get the same number and the recording's bytes. If another file has the name by now, nothing is written.
 */

#include "record_file.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/compat.h"
#include "common/file.h"

#define PATH_SIZE 2048
#define FLAGS     (O_WRONLY | O_APPEND | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY | O_NONBLOCK)

static char path[PATH_SIZE];
static struct statx created;

/* Makes the path absolute, since the program may change its working directory. */
static int find_path(const char *path_template)
{
	size_t used = 0;

	path[0] = '\0';
	if (path_template[0] != '/') {
		if (!getcwd(path, sizeof(path) - 1))
			return -errno;
		used = strlen(path);
		path[used++] = '/';
	}
	if (gp_file_expand(path + used, sizeof(path) - used, path_template))
		return 0;
	snprintf(path, sizeof(path), "%s", path_template);
	return -ENAMETOOLONG;
}

static int identify(int fd, struct statx *ret)
{
	return statx(fd, "", AT_EMPTY_PATH, STATX_INO, ret) ? -errno : 0;
}

static bool is_own_file(const struct statx *file)
{
	return file->stx_ino == created.stx_ino && file->stx_dev_major == created.stx_dev_major &&
	       file->stx_dev_minor == created.stx_dev_minor;
}

/* A thread that is cancelled while the file is open would leave its descriptor open, so cancellation is disabled. */
int gp_record_file_create(const char *path_template)
{
	int r = find_path(path_template), cancel_state, fd;

	if (r)
		return r;
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state);
	fd = open(path, FLAGS | O_CREAT | O_EXCL, 0600);
	r = fd < 0 ? -errno : identify(fd, &created);
	if (fd >= 0)
		close(fd);
	pthread_setcancelstate(cancel_state, NULL);
	return r;
}

int gp_record_file_append(const void *data, size_t length)
{
	struct statx now;
	int cancel_state, fd, r;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state);
	fd = open(path, FLAGS);
	r = fd < 0 ? -errno : identify(fd, &now);
	if (!r)
		r = is_own_file(&now) ? gp_file_write(fd, data, length) : -ESTALE;
	if (fd >= 0)
		close(fd);
	pthread_setcancelstate(cancel_state, NULL);
	return r;
}

const char *gp_record_file_name(void)
{
	return path;
}
