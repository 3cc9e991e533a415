/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * The connections of the exporter, so that slow clients cannot keep others out. A client has a bounded time to ask, and
 * again to read its answer. Where there are too many clients, the one that has asked or read for the longest is ended.
 * Ended means that its socket is shut down; whoever serves the connection then removes the client.
 *
 * All functions may be called by any thread.
 */

#include <pthread.h>
#include <stdint.h>
#include <sys/queue.h>
#include <sys/socket.h>

enum { STAT_CLIENTS_MAX = 64, STAT_CLIENTS_OF_ONE_MAX = 32 /* of one address */ };

enum stat_client_state {
	STAT_CLIENT_ASKS,
	STAT_CLIENT_WAITS, /* for its answer to be made: it is not ended meanwhile */
	STAT_CLIENT_READS,
};

struct stat_client;

struct stat_clients {
	pthread_mutex_t mutex;
	TAILQ_HEAD(, stat_client) list; /* that have not been ended, by the time of their state: the earliest first */
	uint64_t time_ns;		/* to ask, or to read */
	uint64_t (*now_ns)(void);
};

void stat_clients_init(struct stat_clients *clients, uint64_t time_ns, uint64_t (*now_ns)(void));

/*
 * A new client, which asks. If there is no room for it, the earliest is ended, or the new one where all others wait.
 * NULL, and it is ended, if there is no memory.
 */
struct stat_client *stat_clients_add(struct stat_clients *clients, int fd, const struct sockaddr *address);

/* Before the socket is closed. The client may be NULL. */
void stat_clients_remove(struct stat_clients *clients, struct stat_client *client);

/* Sets what the client does from now on. The client may be NULL. */
void stat_clients_set(struct stat_clients *clients, struct stat_client *client, enum stat_client_state state);

/* Ends the clients whose time is over. */
void stat_clients_end_late(struct stat_clients *clients);
