/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * The connections of the broker. Each takes one request, and ends with its answer. A client has a bounded time to send
 * its request, and waits for its turn for a bounded time. Users take turns.
 *
 * The functions wait for nothing, and take no lock: the caller does.
 */

#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "stat_yield_request.h"

enum {
	STAT_YIELD_CLIENTS = 64,
	STAT_YIELD_CLIENTS_OF_USER = 16,
};

/* For a client to send its request, and to wait for its turn. */
#define STAT_YIELD_SEND_NS INT64_C(1000000000)
#define STAT_YIELD_TURN_NS INT64_C(300000000)

struct stat_yield_client {
	enum { YIELD_FREE, YIELD_SENDS, YIELD_WAITS, YIELD_ASKED } state;
	int fd;
	uid_t uid;     /* that the kernel reports */
	uint64_t user; /* that shares are counted by (stat_yield_peer.h) */
	pid_t pid;
	int64_t since_ns; /* when it entered its state */
	size_t length;
	char line[STAT_YIELD_REQUEST_MAX];
	struct stat_yield_request request; /* once it waits */
};

struct stat_yield_clients {
	struct stat_yield_client all[STAT_YIELD_CLIENTS];
	uint64_t last_user; /* that had a turn */
};

/*
 * Takes over a connected socket. If there are too many clients of the user, or of all users, the one that has sent for
 * the longest time is closed or, if all of them wait, the new one.
 */
void stat_yield_clients_add(
	struct stat_yield_clients *clients, int fd, uid_t uid, uint64_t user, pid_t pid, int64_t now_ns);

/* Fills an entry for each client. Returns the milliseconds until a time is over, or -1. */
int stat_yield_clients_fill(
	const struct stat_yield_clients *clients, struct pollfd fds[static STAT_YIELD_CLIENTS], int64_t now_ns);

/*
 * Reads requests, and closes the clients that have hung up or sent for too long. Answers those whose request is wrong,
 * or that have waited for too long. fds: as filled, after poll(). Returns true if a client waits.
 */
bool stat_yield_clients_step(
	struct stat_yield_clients *clients, const struct pollfd fds[static STAT_YIELD_CLIENTS], int64_t now_ns);

/* Returns the client whose turn it is, or NULL. It keeps its place until it is answered. */
struct stat_yield_client *stat_yield_clients_next(struct stat_yield_clients *clients, int64_t now_ns);

/* Sends an answer, which is a line with its end, and closes the client. */
void stat_yield_clients_answer(struct stat_yield_client *client, const char *answer);

void stat_yield_clients_close(struct stat_yield_clients *clients);
