/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Asks many processes the same question at once, through their control sockets. A process that answers is not trusted:
 * it must run as the user that owns the directory, it must answer before the deadline, and its answer is bounded.
 *
 * Connections can be kept for a question that is repeated. A process that has not answered by the deadline is late: in
 * the next round its old answer is received, and the new question is not sent to it. No other process waits for it. A
 * process that is stopped (SIGSTOP) is late as soon as that is noticed.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct ctl_client {
	int dir_fd;       /* the socket directory, or GP_CTL_NO_DIR; not owned */
	const char *name; /* of the socket; not owned */
	uid_t uid;        /* user that the server must run as; root connects as this user */
	bool is_kept;     /* stays connected after its answer, or when it is late */

	int error;      /* 0, or the reason for no connection and, after a round, for no answer */
	pid_t peer_pid; /* 0: not connected, or a process of a pid namespace that is not visible here */
	char *answer;   /* one line without its end; NULL before it is complete */

	int fd; /* -1: not connected */
	bool is_pending;
	bool is_late; /* was asked in an earlier round, and has not answered yet */
	unsigned tries;
	int64_t retry_ns, asked_ns;
	size_t sent, length, size;
};

/* The clock of all deadlines here: CLOCK_MONOTONIC. */
int64_t ctl_client_now_ns(void);

/*
 * Connects without waiting. The caller sets the first four members. Returns the error, and keeps it in client->error:
 *	0
 *	-ECONNREFUSED		no process listens
 *	-EAGAIN			the process does not accept yet; ctl_client_ask() tries again
 *	-EMFILE, -ENFILE	there is no descriptor now; ctl_client_ask() tries again
 *	-ENOTSOCK		the name is not that of a socket
 *	-EPERM			a process of another user listens
 *	another -errno
 *
 * Root connects with the effective user id of the directory's owner, for two reasons: a server in a user namespace
 * knows that user but not root, and a path that the owner made must not lead root to a socket that the owner may not
 * use.
 */
int ctl_client_open(struct ctl_client *client);

/* A question to many clients, at most window of them at a time. */
struct ctl_round {
	const char *request;
	size_t max_bytes; /* of an answer */
	size_t window;
	int64_t deadline_ns; /* of the whole round, by ctl_client_now_ns() */
	int64_t timeout_ns;  /* ask timeout: the time that each client gets, even if others need its slot */

	/* Returns the next client, opened by ctl_client_open(); NULL: ask no more clients until another is done. */
	struct ctl_client *(*next)(void *arg);
	/* Called once for each client that next() returned, when it has an answer or an error. */
	void (*done)(void *arg, struct ctl_client *client);
	/* True if other clients need the slot of a client that has not answered for timeout_ns. */
	bool (*is_slot_needed)(void *arg, const struct ctl_client *client);
	/* True if the client's process is stopped. Called for clients that are silent for a moment. May be NULL. */
	bool (*is_stopped)(void *arg, const struct ctl_client *client);
	void *arg;
};

/*
 * Asks until all clients have answered or the deadline has passed. Errors of a client, besides those of
 * ctl_client_open():
 *	-ETIMEDOUT	no answer before the deadline, or the process is stopped
 *	-EBUSY		no answer within timeout_ns, and another client needed the slot
 *	-EMSGSIZE	the answer is longer than max_bytes
 *	-ECONNRESET	the connection ended before the end of the answer
 *	-ENOMEM
 * A client that is kept can be asked again, which frees its last answer.
 */
void ctl_client_ask(const struct ctl_round *round);

/* Closes the connection, and frees the answer. */
void ctl_client_close(struct ctl_client *client);
