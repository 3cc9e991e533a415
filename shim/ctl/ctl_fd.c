/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "ctl_fd.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/compat.h"

int gp_ctl_fd_identify(int fd, const char *name, struct gp_ctl_fd *found)
{
	struct statx st;

	if (statx(fd, name, AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW, STATX_INO, &st))
		return -errno;
	*found = (struct gp_ctl_fd){fd, st.stx_dev_major, st.stx_dev_minor, st.stx_ino};
	return 0;
}

bool gp_ctl_fd_is_same(const struct gp_ctl_fd *one, const struct gp_ctl_fd *other)
{
	return one->inode == other->inode && one->device_major == other->device_major &&
	       one->device_minor == other->device_minor;
}

enum {
	HIGH = 512,     /* descriptors are moved to this number or above */
	TABLE_MIN = 64, /* size of the smallest table of descriptors */
	TABLE_END = 8,  /* gp_ctl_fd_adopt_at_once takes one of this many last numbers of the table */
};

/* Returns the current size of the process's table of descriptors, a multiple of TABLE_MIN. */
static int table_size(void)
{
	static const char name[] = "FDSize:";
	char text[4096];
	const char *found;
	int fd = open("/proc/self/status", O_RDONLY | O_CLOEXEC), size;
	ssize_t length;

	if (fd < 0)
		return TABLE_MIN;
	length = read(fd, text, sizeof(text) - 1);
	close(fd);
	text[length > 0 ? length : 0] = '\0';
	found = strstr(text, name);
	size = found ? atoi(found + sizeof(name) - 1) : 0;
	return size > TABLE_MIN ? size : TABLE_MIN;
}

bool gp_ctl_fd_is_ours(const struct gp_ctl_fd *own)
{
	struct gp_ctl_fd found;

	return own->fd >= 0 && !gp_ctl_fd_identify(own->fd, "", &found) && gp_ctl_fd_is_same(own, &found);
}

/*
 * True if a new number has a copy of a file that the program had put at the old one before the call. It may have put a
 * file at the new number since: that file is another one, or stays open in a program that the process executes.
 */
static bool is_copy(int copied, int from)
{
	struct gp_ctl_fd copy, original;

	return !gp_ctl_fd_identify(copied, "", &copy) && !gp_ctl_fd_identify(from, "", &original) &&
	       gp_ctl_fd_is_same(&copy, &original) && fcntl(copied, F_GETFD) & FD_CLOEXEC;
}

/*
 * Moves the descriptor to the first free number from lowest on, and closes the old number. Returns false if there is
 * none, or if the program has put a file of its own at the old or the new number meanwhile. *own is unchanged then.
 */
static bool move(struct gp_ctl_fd *own, int lowest)
{
	struct gp_ctl_fd moved = *own;

	moved.fd = fcntl(own->fd, F_DUPFD_CLOEXEC, lowest);
	if (moved.fd < 0)
		return false;
	if (gp_ctl_fd_is_ours(&moved)) {
		gp_ctl_fd_close(own);
		*own = moved;
		return true;
	}
	if (is_copy(moved.fd, own->fd))
		close(moved.fd);
	return false;
}

/*
 * Moves the descriptor to the wanted number or above, or as high as the program's limit on descriptors allows. It never
 * stays at 0 to 2, where the program expects its input and output: if there is no other number it is closed, and the
 * result is -EMFILE.
 */
static int move_up(struct gp_ctl_fd *own, int wanted)
{
	const int lowest[] = {wanted, 200, 64, STDERR_FILENO + 1};

	for (unsigned i = 0; i < sizeof(lowest) / sizeof(lowest[0]); i++)
		if (lowest[i] <= wanted && gp_ctl_fd_is_ours(own) && move(own, lowest[i]))
			return 0;
	if (!gp_ctl_fd_is_ours(own))
		return -EBADF;
	if (own->fd > STDERR_FILENO)
		return 0;
	gp_ctl_fd_close(own);
	return -EMFILE;
}

static int adopt(struct gp_ctl_fd *own, int fd, int wanted)
{
	int error = gp_ctl_fd_identify(fd, "", own);

	if (!error)
		error = move_up(own, wanted);
	else if (error != -EBADF)
		close(fd);
	if (error)
		*own = GP_CTL_NO_FD;
	return error;
}

int gp_ctl_fd_adopt(struct gp_ctl_fd *own, int fd)
{
	return adopt(own, fd, HIGH);
}

int gp_ctl_fd_adopt_at_once(struct gp_ctl_fd *own, int fd)
{
	int end = table_size() - TABLE_END;

	return adopt(own, fd, end < HIGH ? end : HIGH);
}

void gp_ctl_fd_raise(struct gp_ctl_fd *own)
{
	if (own->fd < HIGH && gp_ctl_fd_is_ours(own))
		(void)move(own, HIGH);
}

void gp_ctl_fd_close(struct gp_ctl_fd *own)
{
	if (gp_ctl_fd_is_ours(own))
		close(own->fd);
	*own = GP_CTL_NO_FD;
}
