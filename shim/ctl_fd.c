/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "ctl_fd.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

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

/*
 * As high as the program's limit on descriptors lets us, and never where it expects its own input
 * and output: -EMFILE, with the descriptor closed, if there is no other place.
 */
static int move_up(int fd)
{
	static const int lowest[] = {512, 200, 64, STDERR_FILENO + 1};

	for (unsigned i = 0; i < sizeof(lowest) / sizeof(lowest[0]); i++) {
		int moved = fcntl(fd, F_DUPFD_CLOEXEC, lowest[i]);

		if (moved >= 0) {
			close(fd);
			return moved;
		}
	}
	if (fd > STDERR_FILENO)
		return fd;
	close(fd);
	return -EMFILE;
}

int gp_ctl_fd_adopt(struct gp_ctl_fd *own, int fd)
{
	int error;

	*own = GP_CTL_NO_FD;
	fd = move_up(fd);
	if (fd < 0)
		return fd;
	error = gp_ctl_fd_identify(fd, "", own);
	if (error) {
		close(fd);
		*own = GP_CTL_NO_FD;
	}
	return error;
}

bool gp_ctl_fd_is_ours(const struct gp_ctl_fd *own)
{
	struct gp_ctl_fd found;

	return own->fd >= 0 && !gp_ctl_fd_identify(own->fd, "", &found) &&
	       gp_ctl_fd_is_same(own, &found);
}

void gp_ctl_fd_close(struct gp_ctl_fd *own)
{
	if (gp_ctl_fd_is_ours(own))
		close(own->fd);
	*own = GP_CTL_NO_FD;
}
