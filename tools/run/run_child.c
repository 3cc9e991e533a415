/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "run_child.h"

enum { CANNOT_START = 127 };

static int64_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void become(const char *path, const char *const *words, const char *const *settings, int out_fd)
{
	int null_fd = open("/dev/null", O_RDONLY);

	dup2(null_fd, STDIN_FILENO);
	dup2(out_fd, STDOUT_FILENO);
	dup2(out_fd, STDERR_FILENO);
	for (size_t i = 0; settings[i]; i++)
		putenv((char *)settings[i]);
	execv(path, (char *const *)words);
	_exit(CANNOT_START);
}

/* Reads until the end or the deadline. Output beyond the size is read and dropped. */
static void read_all(int fd, int64_t deadline_ms, char *out, size_t size)
{
	size_t used = 0;
	char dropped[512];

	for (;;) {
		struct pollfd wait = {.fd = fd, .events = POLLIN};
		int64_t left_ms = deadline_ms - now_ms();
		int r = left_ms > 0 ? poll(&wait, 1, (int)left_ms) : 0;
		bool has_room = used < size - 1;
		ssize_t n;

		if (r < 0 && errno == EINTR)
			continue;
		n = r > 0 ? read(fd, has_room ? out + used : dropped, has_room ? size - 1 - used : sizeof(dropped)) : 0;
		if (n > 0 && has_room)
			used += (size_t)n;
		out[used] = '\0';
		if (n <= 0)
			return;
	}
}

/* Waits for the end of a child that may have closed its output before. Kills it at the deadline. */
static int wait_for(pid_t pid, int64_t deadline_ms)
{
	const struct timespec pause = {.tv_nsec = 1000000};
	bool is_late = false;
	int status;

	for (;;) {
		pid_t ended = waitpid(pid, &status, is_late ? 0 : WNOHANG);

		if (ended < 0 && errno != EINTR)
			return -errno;
		if (ended == pid)
			break;
		nanosleep(&pause, NULL);
		if (!is_late && now_ms() >= deadline_ms) {
			is_late = true;
			kill(pid, SIGKILL);
		}
	}
	if (is_late)
		return -ETIMEDOUT;
	return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

int run_child(const char *path, const char *const *words, const char *const *settings, char *out, size_t size)
{
	int64_t deadline_ms = now_ms() + RUN_CHILD_SECONDS * 1000;
	int fds[2], r;
	pid_t pid;

	out[0] = '\0';
	if (pipe2(fds, O_CLOEXEC) < 0)
		return -errno;
	pid = fork();
	if (pid < 0) {
		r = -errno;
		close(fds[0]);
		close(fds[1]);
		return r;
	}
	if (pid == 0)
		become(path, words, settings, fds[1]);
	close(fds[1]);
	(void)read_all(fds[0], deadline_ms, out, size);
	close(fds[0]);
	return wait_for(pid, deadline_ms);
}
