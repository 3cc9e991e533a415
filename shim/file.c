/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "file.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

bool gp_file_expand(char *path, size_t size, const char *path_template)
{
	size_t used = 0;

	for (const char *from = path_template; *from; from++) {
		int n;
		if (from[0] == '%' && from[1] == 'p') {
			n = snprintf(path + used, size - used, "%d", (int)getpid());
			from++;
		} else {
			n = snprintf(path + used, size - used, "%c", *from);
			from += from[0] == '%' && from[1] == '%';
		}
		used += (size_t)n;
		if (used >= size)
			return false;
	}
	return used > 0;
}

static int write_all(int fd, const char *data, size_t length)
{
	while (length) {
		ssize_t n = write(fd, data, length);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		data += n;
		length -= (size_t)n;
	}
	return 0;
}

/*
 * A pipe without a reader raises a signal in this thread, and so does a file at its limit: they are held back, and
 * those that were not pending already are taken away again.
 */
int gp_file_write(int fd, const void *data, size_t length)
{
	static const int raised[] = {SIGPIPE, SIGXFSZ};
	static const struct timespec at_once;
	sigset_t held, old, pending, new;
	int r;

	sigemptyset(&held);
	sigemptyset(&new);
	for (size_t i = 0; i < sizeof(raised) / sizeof(raised[0]); i++)
		sigaddset(&held, raised[i]);
	sigprocmask(SIG_BLOCK, &held, &old);
	sigpending(&pending);
	for (size_t i = 0; i < sizeof(raised) / sizeof(raised[0]); i++)
		if (!sigismember(&pending, raised[i]))
			sigaddset(&new, raised[i]);
	r = write_all(fd, data, length);
	while (sigtimedwait(&new, NULL, &at_once) >= 0 || errno == EINTR)
		;
	sigprocmask(SIG_SETMASK, &old, NULL);
	return r;
}
