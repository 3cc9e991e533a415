/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "stat_yield_clients.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static void release(struct stat_yield_client *client)
{
	close(client->fd);
	*client = (struct stat_yield_client){.state = YIELD_FREE, .fd = -1};
}

/* Returns a free client, or NULL. */
static struct stat_yield_client *find_free(struct stat_yield_clients *clients)
{
	for (int i = 0; i < STAT_YIELD_CLIENTS; i++)
		if (clients->all[i].state == YIELD_FREE)
			return &clients->all[i];
	return NULL;
}

/*
 * Makes room if there are n_max clients, counting only those of the user if that is not NULL: closes the one that has
 * sent for the longest time. Returns false if all of them wait.
 */
static bool make_room(struct stat_yield_clients *clients, const uint64_t *user, unsigned n_max)
{
	struct stat_yield_client *earliest = NULL;
	unsigned n = 0;

	for (int i = 0; i < STAT_YIELD_CLIENTS; i++) {
		struct stat_yield_client *client = &clients->all[i];

		if (client->state == YIELD_FREE || (user && client->user != *user))
			continue;
		n++;
		if (client->state == YIELD_SENDS && (!earliest || client->since_ns < earliest->since_ns))
			earliest = client;
	}
	if (n < n_max)
		return true;
	if (earliest)
		release(earliest);
	return earliest != NULL;
}

void stat_yield_clients_add(
	struct stat_yield_clients *clients, int fd, uid_t uid, uint64_t user, pid_t pid, int64_t now_ns)
{
	bool has_room =
		make_room(clients, &user, STAT_YIELD_CLIENTS_OF_USER) && make_room(clients, NULL, STAT_YIELD_CLIENTS);
	struct stat_yield_client *client = has_room ? find_free(clients) : NULL;

	if (!client) {
		close(fd);
		return;
	}
	*client = (struct stat_yield_client){
		.state = YIELD_SENDS, .fd = fd, .uid = uid, .user = user, .pid = pid, .since_ns = now_ns};
}

static int64_t end_ns(const struct stat_yield_client *client)
{
	return client->since_ns + (client->state == YIELD_SENDS ? STAT_YIELD_SEND_NS : STAT_YIELD_TURN_NS);
}

int stat_yield_clients_fill(
	const struct stat_yield_clients *clients, struct pollfd fds[static STAT_YIELD_CLIENTS], int64_t now_ns)
{
	int64_t next_ns = INT64_MAX;

	for (int i = 0; i < STAT_YIELD_CLIENTS; i++) {
		const struct stat_yield_client *client = &clients->all[i];
		bool is_polled = client->state == YIELD_SENDS || client->state == YIELD_WAITS;

		fds[i] = (struct pollfd){.fd = is_polled ? client->fd : -1};
		if (client->state == YIELD_SENDS)
			fds[i].events = POLLIN;
		if (is_polled && end_ns(client) < next_ns)
			next_ns = end_ns(client);
	}
	if (next_ns == INT64_MAX)
		return -1;
	return next_ns <= now_ns ? 0 : (int)((next_ns - now_ns) / 1000000 + 1);
}

/* The answer is far smaller than the send buffer of a connection. */
void stat_yield_clients_answer(struct stat_yield_client *client, const char *answer)
{
	(void)!send(client->fd, answer, strlen(answer), MSG_NOSIGNAL | MSG_DONTWAIT);
	release(client);
}

static void refuse(struct stat_yield_client *client, const char *reason, const char *why)
{
	char answer[GP_BROKER_ANSWER_MAX];

	stat_yield_error_format(answer, reason, why);
	stat_yield_clients_answer(client, answer);
}

/* Handles what has been received, if it is a whole line. */
static void take_line(struct stat_yield_client *client, int64_t now_ns)
{
	char *end = memchr(client->line, '\n', client->length);

	if (!end && client->length < sizeof(client->line))
		return;
	if (end)
		*end = '\0';
	/* A line has no NUL, and there is nothing behind it. */
	if (!end || end + 1 != client->line + client->length || strlen(client->line) + 1 != client->length ||
		!stat_yield_request_parse(client->line, &client->request)) {
		refuse(client, "usage", "the request is not one line: yield UUID BYTES, or wanted UUID BYTES");
		return;
	}
	client->state = YIELD_WAITS;
	client->since_ns = now_ns;
}

static void receive(struct stat_yield_client *client, int64_t now_ns)
{
	ssize_t n =
		recv(client->fd, client->line + client->length, sizeof(client->line) - client->length, MSG_DONTWAIT);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0) {
		release(client);
		return;
	}
	client->length += (size_t)n;
	take_line(client, now_ns);
}

static void step(struct stat_yield_client *client, short events, int64_t now_ns)
{
	if (client->state == YIELD_WAITS && events)
		release(client); /* it has hung up */
	else if (client->state == YIELD_SENDS && events)
		receive(client, now_ns);
	if (client->state == YIELD_SENDS && now_ns >= end_ns(client))
		release(client);
	else if (client->state == YIELD_WAITS && now_ns >= end_ns(client))
		refuse(client, GP_BROKER_BUSY, "other requests came first");
}

bool stat_yield_clients_step(
	struct stat_yield_clients *clients, const struct pollfd fds[static STAT_YIELD_CLIENTS], int64_t now_ns)
{
	bool is_waiting = false;

	for (int i = 0; i < STAT_YIELD_CLIENTS; i++) {
		struct stat_yield_client *client = &clients->all[i];

		/* The client may have been answered meanwhile. No other one has its place before the next fill. */
		if (client->state == YIELD_SENDS || client->state == YIELD_WAITS)
			step(client, client->fd == fds[i].fd ? fds[i].revents : 0, now_ns);
		is_waiting |= client->state == YIELD_WAITS;
	}
	return is_waiting;
}

/* Users take turns in the order of their numbers, and the requests of a user in the order in which they came. */
struct stat_yield_client *stat_yield_clients_next(struct stat_yield_clients *clients, int64_t now_ns)
{
	struct stat_yield_client *best = NULL;

	for (int i = 0; i < STAT_YIELD_CLIENTS; i++) {
		struct stat_yield_client *client = &clients->all[i];
		uint64_t distance = client->user - clients->last_user - 1;

		if (client->state != YIELD_WAITS)
			continue;
		if (!best || distance < best->user - clients->last_user - 1 ||
			(client->user == best->user && client->since_ns < best->since_ns))
			best = client;
	}
	if (best) {
		best->state = YIELD_ASKED;
		best->since_ns = now_ns;
		clients->last_user = best->user;
	}
	return best;
}

void stat_yield_clients_close(struct stat_yield_clients *clients)
{
	for (int i = 0; i < STAT_YIELD_CLIENTS; i++)
		if (clients->all[i].state != YIELD_FREE)
			release(&clients->all[i]);
}
