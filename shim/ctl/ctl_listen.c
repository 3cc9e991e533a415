/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "ctl_listen.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/compat.h"
#include "common/ctl_abstract.h"

enum {
	BACKLOG = 8,
	REMOVED_MAX = 64, /* stale sockets that one start removes at most, since the program waits meanwhile */
	START_MAX_S = 60, /* a socket has its temporary name for less time than this, unless its process was killed */
};

/* A socket's temporary name, until it listens: its final name between these. */
#define NEW_PREFIX "."
#define NEW_SUFFIX ".new"

/*
 * Returns true for the temporary name of a socket whose start was cut off, and sets its final name. Returns false for
 * other names, and for a socket whose start may still be under way.
 */
static bool find_final_name(int dir_fd, const char *name, char final[static GP_CTL_NAME_MAX])
{
	size_t length = strlen(name);
	struct statx st;
	time_t now;

	if (strncmp(name, NEW_PREFIX, strlen(NEW_PREFIX)) != 0 || length <= strlen(NEW_PREFIX NEW_SUFFIX) ||
		length - strlen(NEW_PREFIX NEW_SUFFIX) >= GP_CTL_NAME_MAX ||
		strcmp(name + length - strlen(NEW_SUFFIX), NEW_SUFFIX) != 0)
		return false;
	if (statx(dir_fd, name, AT_SYMLINK_NOFOLLOW, STATX_MTIME, &st))
		return false;
	now = time(NULL);
	if (st.stx_mtime.tv_sec > now || now - st.stx_mtime.tv_sec <= START_MAX_S)
		return false;
	length -= strlen(NEW_PREFIX NEW_SUFFIX);
	memcpy(final, name + strlen(NEW_PREFIX), length);
	final[length] = '\0';
	return true;
}

/*
 * True for the socket of a process that has ended. The pid alone does not show this: a process in another container
 * that shares the directory may have a pid that is unknown here. But its socket accepts a connection.
 */
static bool is_stale(int dir_fd, const char *name)
{
	char final[GP_CTL_NAME_MAX];
	struct sockaddr_un address;
	socklen_t length;
	uint64_t start_ticks;
	bool is_refused, is_new = find_final_name(dir_fd, name, final);
	pid_t pid;
	int fd;

	if (!gp_ctl_name_parse(is_new ? final : name, &pid, &start_ticks) || !kill(pid, 0) || errno != ESRCH)
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

/* Removes the sockets of processes that were killed or called _exit(), and so did not remove their sockets. */
static void remove_stale(int dir_fd)
{
	int list_fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = list_fd < 0 ? NULL : fdopendir(list_fd);
	const struct dirent *entry;
	int n_removed = 0;

	if (!dir) {
		if (list_fd >= 0)
			close(list_fd);
		return;
	}
	while (n_removed < REMOVED_MAX && (entry = readdir(dir)))
		if (is_stale(dir_fd, entry->d_name) && !unlinkat(dir_fd, entry->d_name, 0))
			n_removed++;
	closedir(dir);
}

/*
 * Gives the socket a file. The file gets its final name only when the socket listens and its mode keeps other users
 * out.
 */
static int publish(int fd, int dir_fd, const char *name, struct gp_ctl_fd *file)
{
	char temporary[GP_CTL_NAME_MAX + sizeof(NEW_PREFIX NEW_SUFFIX)];
	struct sockaddr_un address;
	socklen_t length;
	int error;

	snprintf(temporary, sizeof(temporary), NEW_PREFIX "%s" NEW_SUFFIX, name);
	error = gp_ctl_address(dir_fd, temporary, &address, &length);
	if (error)
		return error;
	/* An earlier start may have been cut off. */
	if (bind(fd, (struct sockaddr *)&address, length) && (errno != EADDRINUSE || unlinkat(dir_fd, temporary, 0) ||
								     bind(fd, (struct sockaddr *)&address, length)))
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

/* gp_ctl_fd_adopt on gpupool's thread, gp_ctl_fd_adopt_at_once on a thread of the program. */
typedef int adopt_fn(struct gp_ctl_fd *own, int fd);

static int listen_abstract(struct gp_ctl_listener *listener, adopt_fn *adopt)
{
	struct sockaddr_un address;
	socklen_t length;
	int fd, error = gp_ctl_address(GP_CTL_NO_DIR, listener->name, &address, &length);

	if (error)
		return error;
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	if (!bind(fd, (struct sockaddr *)&address, length) && !listen(fd, BACKLOG))
		return adopt(&listener->fd, fd);
	error = -errno;
	close(fd);
	return error;
}

static int open_socket(struct gp_ctl_listener *listener, adopt_fn *adopt)
{
	int error, fd, dir_fd;

	if (!*listener->dir)
		return listen_abstract(listener, adopt);
	dir_fd = gp_ctl_dir_open(listener->dir, listener->uid, true);
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
	error = adopt(&listener->fd, fd);
	if (error)
		unlinkat(dir_fd, listener->name, 0);
close_dir:
	close(dir_fd);
	return error;
}

static int open_in_dir(struct gp_ctl_listener *listener)
{
	int dir_fd = gp_ctl_dir_open(listener->dir, listener->uid, true);

	if (dir_fd < 0)
		return dir_fd;
	remove_stale(dir_fd);
	close(dir_fd);
	return open_socket(listener, gp_ctl_fd_adopt_at_once);
}

/* Tries the nth directory. If it is set and unusable, the reason is added to listener->problems, for a log line. */
static int try_dir(struct gp_ctl_listener *listener, const struct gp_ctl_dirs *dirs, unsigned nth)
{
	static const char *const variables[] = {"GPUPOOL_RUNTIME_DIR", GP_CTL_RUN_DIR, "XDG_RUNTIME_DIR", "TMPDIR"};
	size_t length = strlen(listener->problems), size = sizeof(listener->problems) - length;
	char *text = listener->problems + length;
	int error = gp_ctl_dir(dirs, nth, listener->dir, sizeof(listener->dir)), dir_error = error;

	if (error == -ENOENT || error == -ERANGE)
		return error;
	if (!error)
		error = open_in_dir(listener);
	if (!error)
		return 0;
	if (length && size > 2) {
		strcpy(text, "; ");
		text += 2;
		size -= 2;
	}
	if (dir_error)
		snprintf(text, size, "%s %s", variables[nth],
			error == -EINVAL ? "is not an absolute path" : "is too long");
	else
		gp_ctl_dir_explain(listener->dir, listener->uid, error, text, size);
	return error;
}

/* The name is random, so it is almost certainly free. If it is taken, one more is tried. */
static int open_abstract(struct gp_ctl_listener *listener)
{
	int error = -EADDRINUSE;

	listener->dir[0] = '\0';
	for (int i = 0; i < 2 && error == -EADDRINUSE; i++) {
		error = gp_ctl_abstract_draw(listener->name, listener->uid);
		if (!error)
			error = open_socket(listener, gp_ctl_fd_adopt_at_once);
	}
	return error;
}

/* Returns an error if the system refuses every socket. Then no directory is tried, or reported as the problem. */
static int try_socket(void)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return -errno;
	close(fd);
	return 0;
}

int gp_ctl_listener_init(struct gp_ctl_listener *listener, const struct gp_ctl_dirs *dirs)
{
	uint64_t start_ticks;
	char state;
	int error;

	listener->fd = listener->file = GP_CTL_NO_FD;
	listener->uid = dirs->uid;
	listener->problems[0] = '\0';
	error = gp_ctl_process_stat(0, &start_ticks, &state);
	if (!error)
		error = try_socket();
	if (error)
		return error;
	gp_ctl_name_format(listener->name, getpid(), start_ticks);
	for (unsigned nth = 0; (error = try_dir(listener, dirs, nth)) != -ERANGE; nth++)
		if (!error)
			return 0;
	return open_abstract(listener);
}

int gp_ctl_listener_open(struct gp_ctl_listener *listener)
{
	return open_socket(listener, gp_ctl_fd_adopt);
}

/*
 * A socket in a directory is out of reach of other users, but any user can connect to a socket without a file. Such
 * connections are closed here, before they take a slot from a client that may send requests.
 */
static bool may_connect(const struct gp_ctl_listener *listener, int fd)
{
	return *listener->dir || gp_ctl_is_peer_trusted(fd);
}

int gp_ctl_listener_accept(struct gp_ctl_listener *listener)
{
	int fd;

	if (!gp_ctl_fd_is_ours(&listener->fd))
		return -EBADF;
	fd = accept4(listener->fd.fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	if (fd < 0)
		return -errno;
	if (may_connect(listener, fd))
		return fd;
	close(fd);
	return -ECONNABORTED;
}

void gp_ctl_listener_unlink(const struct gp_ctl_listener *listener)
{
	int dir_fd = *listener->dir ? gp_ctl_dir_open(listener->dir, listener->uid, false) : -ENOENT;
	struct gp_ctl_fd found;

	if (dir_fd < 0)
		return;
	/* Another directory may have this name by now, with another process's file in it. */
	if (!gp_ctl_fd_identify(dir_fd, listener->name, &found) && gp_ctl_fd_is_same(&found, &listener->file))
		unlinkat(dir_fd, listener->name, 0);
	close(dir_fd);
}
