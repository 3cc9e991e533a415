/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Asks many processes the same question at once, through their control sockets. A process that answers is not trusted:
 * it must be of the user that owns the directory, it has until the deadline, and its answer is bounded.
 *
 * For a question that is repeated, connections can be kept. An answer that is late is then still received when the next
 * question comes, which is not put to that process; but no other process waits for it.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct ctl_client {
	int dir_fd;       /* where the socket is, or GP_CTL_NO_DIR; not owned */
	const char *name; /* not owned */
	uid_t uid;        /* who must be at the other end, and as whom root connects */
	bool is_kept;     /* stays connected once it has answered, or is late with it */

	int error;      /* 0, or why there is no connection, and later, no answer */
	pid_t peer_pid; /* 0: a process that cannot be seen from here, or no connection */
	char *answer;   /* one line without its end; NULL as long as there is none */

	int fd; /* -1: not connected */
	bool is_pending;
	bool is_late; /* was asked the last time, and has not answered yet */
	unsigned tries;
	int64_t retry_ns, asked_ns;
	size_t sent, length, size;
};

/* The time that they are waited by, which never goes back. */
int64_t ctl_client_now_ns(void);

/*
 * Connects, without waiting. The caller has set the first four members. Returns and keeps as
 * error: 0, -ECONNREFUSED (nobody listens), -EAGAIN (does not accept; asking waits for it),
 * -EMFILE or -ENFILE (likewise), -ENOTSOCK, -EPERM (a process of another user listens), or another -errno.
 *
 * Root connects with the effective user id of the directory's owner: a server in a user namespace knows that user, and
 * not root; and a path that the owner made leads root only to what the owner may reach.
 */
int ctl_client_open(struct ctl_client *client);

/* A question to many clients, of which at most window are waited for at a time. */
struct ctl_round {
	const char *request;
	size_t max_bytes; /* of an answer */
	size_t window;
	int64_t deadline_ns; /* of all of it, by ctl_client_now_ns() */
	int64_t patience_ns; /* a client is waited for as long in any case */

	/* The next client, after ctl_client_open(); NULL: none is to be asked until another is done. */
	struct ctl_client *(*next)(void *arg);
	/* Called for each client that next() returned, once: it has an answer or an error. */
	void (*done)(void *arg, struct ctl_client *client);
	/* Whether others need the place of a client that has not answered for patience_ns. */
	bool (*is_in_the_way)(void *arg, const struct ctl_client *client);
	void *arg;
};

/*
 * Asks until all have answered or the deadline has passed. Errors of clients: -ETIMEDOUT, -EBUSY (given up for others),
 * -EMSGSIZE (longer than max_bytes), -ECONNRESET (ended in the middle), -ENOMEM, those of ctl_client_open(). A client
 * that is kept can be asked again; its answer before is freed then.
 */
void ctl_client_ask(const struct ctl_round *round);

/* Frees what open and ask took. */
void ctl_client_close(struct ctl_client *client);
