/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "counter_page.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <sys/stat.h>
#include <unistd.h>

#include "compat.h"

enum { ATTEMPTS = 8 };

static bool read_at(int fd, void *data, size_t size, size_t offset)
{
	return pread(fd, data, size, (off_t)offset) == (ssize_t)size;
}

static int read_figures(int fd, struct gp_page_figures *ret)
{
	uint64_t before = 0, after = 0;

	for (int i = 0; i < ATTEMPTS; i++) {
		if (!read_at(fd, &before, sizeof(before), offsetof(struct gp_page, count)) ||
			!read_at(fd, ret, sizeof(*ret), offsetof(struct gp_page, copies) + before % 2 * sizeof(*ret)) ||
			!read_at(fd, &after, sizeof(after), offsetof(struct gp_page, count)))
			return -EPROTO;
		/* The next write goes to the other copy; only the one after it would change this copy. */
		if (before == after)
			return 0;
	}
	return -EAGAIN;
}

/* The page is read, not mapped: its owner may make the file shorter, and then a mapping faults. */
static int read_copy(int fd, struct gp_page_copy *ret)
{
	if (!read_at(fd, &ret->header, sizeof(ret->header), 0) || ret->header.magic != GP_PAGE_MAGIC ||
		ret->header.version != GP_PAGE_VERSION || ret->header.bytes != sizeof(struct gp_page) ||
		!read_at(fd, ret->peaks, sizeof(ret->peaks), offsetof(struct gp_page, peaks)))
		return -EPROTO;
	return read_figures(fd, &ret->figures);
}

static void end_texts(struct gp_page_header *header)
{
	header->gpupool_version[GP_PAGE_TEXT - 1] = header->pool[GP_PAGE_TEXT - 1] = '\0';
	header->command[GP_PAGE_TEXT - 1] = '\0';
	for (int i = 0; i < GP_PAGE_LABELS; i++)
		header->labels[i][GP_PAGE_TEXT - 1] = '\0';
}

int gp_page_read(int dir_fd, const char *name, uid_t uid, struct gp_page_copy *ret)
{
	int fd = openat(dir_fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY), error;
	struct statx st;

	if (fd < 0)
		return -errno;
	if (statx(fd, "", AT_EMPTY_PATH, STATX_TYPE | STATX_UID, &st))
		error = -errno;
	else if (!S_ISREG(st.stx_mode) || st.stx_uid != uid)
		error = -EPERM;
	else
		error = read_copy(fd, ret);
	close(fd);
	end_texts(&ret->header);
	if (!error && ret->figures.n_devices > GP_PAGE_DEVICES)
		error = -EPROTO;
	return error;
}
