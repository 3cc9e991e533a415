/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Bounds the connections of the exporter, so that slow clients cannot keep other clients out. A client has a bounded
 * time to send its request, and the same time to read its answer. If there are too many clients, the one that has sent
 * or read for the longest time is ended: its socket is shut down, and the thread that serves it removes the client.
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
	STAT_CLIENT_WAITS, /* while its answer is made; a waiting client is not ended */
	STAT_CLIENT_READS,
};

struct stat_client;

struct stat_clients {
	pthread_mutex_t mutex;
	TAILQ_HEAD(, stat_client) list; /* not yet ended, the longest in its state first */
	uint64_t time_ns;               /* the longest time to send a request, and to read an answer */
	uint64_t (*now_ns)(void);
};

void stat_clients_init(struct stat_clients *clients, uint64_t time_ns, uint64_t (*now_ns)(void));

/*
 * Adds a client in the state STAT_CLIENT_ASKS. If there is no room, ends the client that has been in its state for the
 * longest time or, if all of them wait, the new one. Returns NULL, and shuts the socket down, if there is no memory.
 */
struct stat_client *stat_clients_add(struct stat_clients *clients, int fd, const struct sockaddr *address);

/* Must be called before the socket is closed. The client may be NULL. */
void stat_clients_remove(struct stat_clients *clients, struct stat_client *client);

/* Sets what the client does from now on. The client may be NULL. */
void stat_clients_set(struct stat_clients *clients, struct stat_client *client, enum stat_client_state state);

/* Ends the clients that have sent, or read, for too long. */
void stat_clients_end_late(struct stat_clients *clients);
