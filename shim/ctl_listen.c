/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "ctl_listen.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
	BACKLOG = 8,
	SWEPT_MAX = 64, /* names that one start takes away: it is the program that waits */
};

/*
 * The socket of a process that is gone. Where the number is only unknown here, as in a container
 * that shares the directory, somebody answers.
 */
static bool is_deserted(int dir_fd, const char *name)
{
	struct sockaddr_un address;
	socklen_t length;
	uint64_t start_ticks;
	bool is_refused;
	pid_t pid;
	int fd;

	if (!gp_ctl_name_parse(name, &pid, &start_ticks) || !kill(pid, 0) || errno != ESRCH)
		return false;
	if (gp_ctl_address(dir_fd, name, &address, &length))
		return false;
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return false;
	is_refused = connect(fd, (struct sockaddr *)&address, length) && errno == ECONNREFUSED;
	close(fd);
	return is_refused;
}

/* Who was killed, or ended with _exit(), had no chance to take its name away: the next one does. */
static void sweep(int dir_fd)
{
	int list_fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = list_fd < 0 ? NULL : fdopendir(list_fd);
	const struct dirent *entry;
	int n_swept = 0;

	if (!dir) {
		if (list_fd >= 0)
			close(list_fd);
		return;
	}
	while (n_swept < SWEPT_MAX && (entry = readdir(dir)))
		if (is_deserted(dir_fd, entry->d_name) && !unlinkat(dir_fd, entry->d_name, 0))
			n_swept++;
	closedir(dir);
}

int gp_ctl_listener_init(struct gp_ctl_listener *listener, const struct gp_ctl_places *places)
{
	uint64_t start_ticks;
	char state;
	int error, dir_fd;

	listener->fd = listener->file = GP_CTL_NO_FD;
	listener->uid = places->uid;
	error = gp_ctl_process_stat(0, &start_ticks, &state);
	if (error)
		return error;
	gp_ctl_name_format(listener->name, getpid(), start_ticks);
	dir_fd = gp_ctl_dir_find(places, listener->dir, sizeof(listener->dir));
	if (dir_fd < 0)
		return dir_fd;
	sweep(dir_fd);
	close(dir_fd);
	return gp_ctl_listener_open(listener);
}

/*
 * A socket that is found under its final name already listens, and nobody else ever could connect
 * to it.
 */
static int publish(int fd, int dir_fd, const char *name, struct gp_ctl_fd *file)
{
	char temporary[GP_CTL_NAME_MAX + 8];
	struct sockaddr_un address;
	socklen_t length;
	int error;

	snprintf(temporary, sizeof(temporary), ".%s.new", name);
	error = gp_ctl_address(dir_fd, temporary, &address, &length);
	if (error)
		return error;
	unlinkat(dir_fd, temporary, 0);
	if (bind(fd, (struct sockaddr *)&address, length))
		return -errno;
	error = gp_ctl_fd_identify(dir_fd, temporary, file);
	if (!error && !fchmodat(dir_fd, temporary, 0600, 0) && !listen(fd, BACKLOG) &&
		!renameat(dir_fd, temporary, dir_fd, name))
		return 0;
	if (!error)
		error = -errno;
	unlinkat(dir_fd, temporary, 0);
	return error;
}

int gp_ctl_listener_open(struct gp_ctl_listener *listener)
{
	int error, fd, dir_fd = gp_ctl_dir_open(listener->dir, listener->uid, true);

	if (dir_fd < 0)
		return dir_fd;
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0) {
		error = -errno;
		goto close_dir;
	}
	error = publish(fd, dir_fd, listener->name, &listener->file);
	if (error) {
		close(fd);
		goto close_dir;
	}
	error = gp_ctl_fd_adopt(&listener->fd, fd);
	if (error)
		unlinkat(dir_fd, listener->name, 0);
close_dir:
	close(dir_fd);
	return error;
}

int gp_ctl_listener_accept(struct gp_ctl_listener *listener)
{
	int fd;

	if (!gp_ctl_fd_is_ours(&listener->fd))
		return -EBADF;
	fd = accept4(listener->fd.fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	return fd < 0 ? -errno : fd;
}

void gp_ctl_listener_unlink(const struct gp_ctl_listener *listener)
{
	int dir_fd = gp_ctl_dir_open(listener->dir, listener->uid, false);
	struct gp_ctl_fd found;

	if (dir_fd < 0)
		return;
	/* The directory may be another by now, with somebody else's file in it. */
	if (!gp_ctl_fd_identify(dir_fd, listener->name, &found) &&
		gp_ctl_fd_is_same(&found, &listener->file))
		unlinkat(dir_fd, listener->name, 0);
	close(dir_fd);
}
