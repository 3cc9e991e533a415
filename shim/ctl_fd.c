/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "ctl_fd.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

static int identify(int fd, struct gp_ctl_fd *found)
{
	struct statx st;

	if (statx(fd, "", AT_EMPTY_PATH, STATX_INO, &st))
		return -errno;
	*found = (struct gp_ctl_fd){fd, st.stx_dev_major, st.stx_dev_minor, st.stx_ino};
	return 0;
}

/* As high as the program's limit on descriptors lets us. */
static int move_up(int fd)
{
	static const int lowest[] = {512, 200, 64};

	for (unsigned i = 0; i < sizeof(lowest) / sizeof(lowest[0]); i++) {
		int moved = fcntl(fd, F_DUPFD_CLOEXEC, lowest[i]);

		if (moved >= 0) {
			close(fd);
			return moved;
		}
	}
	return fd;
}

int gp_ctl_fd_adopt(struct gp_ctl_fd *own, int fd)
{
	int error;

	fd = move_up(fd);
	error = identify(fd, own);
	if (error) {
		close(fd);
		*own = GP_CTL_NO_FD;
	}
	return error;
}

bool gp_ctl_fd_is_ours(const struct gp_ctl_fd *own)
{
	struct gp_ctl_fd found;

	if (own->fd < 0 || identify(own->fd, &found))
		return false;
	return found.inode == own->inode && found.device_major == own->device_major &&
	       found.device_minor == own->device_minor;
}

void gp_ctl_fd_close(struct gp_ctl_fd *own)
{
	if (gp_ctl_fd_is_ours(own))
		close(own->fd);
	*own = GP_CTL_NO_FD;
}
