/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Asks several processes the same thing at once, through their control sockets. Whoever answers is
 * not trusted: it must be the user that owns the directory, has until the deadline, and what it
 * sends is bounded.
 *
 * Who asks again and again keeps the connections: an answer that is late is still waited for when the next question
 * comes, which then is not put to that process; but nobody else waits with it.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct ctl_client {
	int dir_fd;       /* where the socket is, or GP_CTL_NO_DIR; not owned */
	const char *name; /* not owned */
	uid_t uid;        /* who must be at the other end */
	bool is_kept;     /* stays connected once it has answered, or is late with it */

	int error;      /* 0, or why there is no connection, and later, no answer */
	pid_t peer_pid; /* 0: a process that cannot be seen from here, or no connection */
	char *answer;   /* one line without its end; NULL as long as there is none */

	int fd; /* -1: not connected */
	bool is_pending;
	bool is_late; /* was asked the last time, and has not answered yet */
	unsigned tries;
	int64_t retry_ns;
	size_t sent, length, size;
};

/* The time that they are waited by, which never goes back. */
int64_t ctl_client_now_ns(void);

/*
 * Connects, without waiting. The caller has set the first four members. Returns and keeps as
 * error: 0, -ECONNREFUSED (nobody listens), -EAGAIN (does not accept; asking waits for it),
 * -ENOTSOCK, -EPERM (somebody else listens), or another -errno.
 */
int ctl_client_open(struct ctl_client *client);

/*
 * Asks those that are open, or were too busy, and waits for every answer until timeout_ms have
 * passed. Afterwards each has an answer or an error: -ETIMEDOUT, -EMSGSIZE (longer than max_bytes),
 * -ECONNRESET (ended in the middle), -ENOMEM. One that is kept can be asked again; what it has answered before is
 * freed.
 */
void ctl_client_ask(struct ctl_client *clients, size_t n, const char *request, size_t max_bytes,
	int timeout_ms);

/* Frees what open and ask took. */
void ctl_client_close(struct ctl_client *client);
