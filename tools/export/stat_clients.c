/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "stat_clients.h"

#include <netinet/in.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

struct stat_client {
	TAILQ_ENTRY(stat_client) link;
	int fd;
	bool is_ended; /* and no longer in the list */
	enum stat_client_state state;
	uint64_t since_ns;       /* when it entered this state */
	struct in6_addr address; /* an IPv4 address is in the first four bytes */
};

void stat_clients_init(struct stat_clients *clients, uint64_t time_ns, uint64_t (*now_ns)(void))
{
	pthread_mutex_init(&clients->mutex, NULL);
	TAILQ_INIT(&clients->list);
	clients->time_ns = time_ns;
	clients->now_ns = now_ns;
}

static void end(struct stat_clients *clients, struct stat_client *client)
{
	(void)shutdown(client->fd, SHUT_RDWR);
	TAILQ_REMOVE(&clients->list, client, link);
	client->is_ended = true;
}

static struct in6_addr plain_address(const struct sockaddr *address)
{
	struct in6_addr plain = {0};

	if (address->sa_family == AF_INET6)
		plain = ((const struct sockaddr_in6 *)(const void *)address)->sin6_addr;
	else if (address->sa_family == AF_INET)
		memcpy(&plain, &((const struct sockaddr_in *)(const void *)address)->sin_addr, sizeof(struct in_addr));
	return plain;
}

/*
 * Makes room if there are n_max clients, counting only those at the address if it is not NULL: ends the client that has
 * been in its state for the longest time. Returns false if that is not possible, because all of them wait.
 */
static bool make_room(struct stat_clients *clients, const struct in6_addr *address, unsigned n_max)
{
	struct stat_client *earliest = NULL, *client;
	unsigned n = 0;

	TAILQ_FOREACH(client, &clients->list, link)
	{
		if (address && memcmp(&client->address, address, sizeof(*address)) != 0)
			continue;
		n++;
		if (!earliest && client->state != STAT_CLIENT_WAITS)
			earliest = client;
	}
	if (n < n_max)
		return true;
	if (earliest)
		end(clients, earliest);
	return earliest != NULL;
}

struct stat_client *stat_clients_add(struct stat_clients *clients, int fd, const struct sockaddr *address)
{
	struct stat_client *client = calloc(1, sizeof(*client));
	bool has_room;

	if (!client) {
		(void)shutdown(fd, SHUT_RDWR);
		return NULL;
	}
	client->fd = fd;
	client->state = STAT_CLIENT_ASKS;
	client->since_ns = clients->now_ns();
	client->address = plain_address(address);
	pthread_mutex_lock(&clients->mutex);
	has_room = make_room(clients, &client->address, STAT_CLIENTS_OF_ONE_MAX) &&
		   make_room(clients, NULL, STAT_CLIENTS_MAX);
	TAILQ_INSERT_TAIL(&clients->list, client, link);
	if (!has_room)
		end(clients, client);
	pthread_mutex_unlock(&clients->mutex);
	return client;
}

void stat_clients_remove(struct stat_clients *clients, struct stat_client *client)
{
	if (!client)
		return;
	pthread_mutex_lock(&clients->mutex);
	if (!client->is_ended)
		TAILQ_REMOVE(&clients->list, client, link);
	pthread_mutex_unlock(&clients->mutex);
	free(client);
}

void stat_clients_set(struct stat_clients *clients, struct stat_client *client, enum stat_client_state state)
{
	if (!client)
		return;
	pthread_mutex_lock(&clients->mutex);
	client->state = state;
	client->since_ns = clients->now_ns();
	if (!client->is_ended) {
		TAILQ_REMOVE(&clients->list, client, link);
		TAILQ_INSERT_TAIL(&clients->list, client, link);
	}
	pthread_mutex_unlock(&clients->mutex);
}

void stat_clients_end_late(struct stat_clients *clients)
{
	uint64_t now = clients->now_ns();
	struct stat_client *client, *next;

	pthread_mutex_lock(&clients->mutex);
	for (client = TAILQ_FIRST(&clients->list); client; client = next) {
		next = TAILQ_NEXT(client, link);
		if (client->state != STAT_CLIENT_WAITS && now - client->since_ns >= clients->time_ns)
			end(clients, client);
	}
	pthread_mutex_unlock(&clients->mutex);
}
