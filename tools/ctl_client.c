/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "ctl_client.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "shim/ctl_proto.h"

enum {
	FIRST_BYTES = 16 << 10,
	MAX_TRIES = 5,
};

#define RETRY_NS INT64_C(20000000)

int64_t ctl_client_now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

/* A link or another file under a socket's name would lead root to whatever its maker likes. */
static int check_file(const struct ctl_client *client)
{
	struct stat st;

	if (client->dir_fd == GP_CTL_NO_DIR)
		return 0;
	if (fstatat(client->dir_fd, client->name, &st, AT_SYMLINK_NOFOLLOW) != 0)
		return -errno;
	return S_ISSOCK(st.st_mode) ? 0 : -ENOTSOCK;
}

static int check_peer(struct ctl_client *client)
{
	struct ucred peer;
	socklen_t length = sizeof(peer);

	if (getsockopt(client->fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0)
		return -errno;
	client->peer_pid = peer.pid;
	return peer.uid == client->uid ? 0 : -EPERM;
}

static int try_open(struct ctl_client *client)
{
	struct sockaddr_un address;
	socklen_t length;
	int error = check_file(client);

	if (!error)
		error = gp_ctl_address(client->dir_fd, client->name, &address, &length);
	if (error)
		return error;
	client->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (client->fd < 0)
		return -errno;
	if (connect(client->fd, (struct sockaddr *)&address, length) != 0)
		error = -errno;
	else
		error = check_peer(client);
	if (error) {
		close(client->fd);
		client->fd = -1;
	}
	return error;
}

int ctl_client_open(struct ctl_client *client)
{
	client->fd = -1;
	client->peer_pid = 0;
	client->answer = NULL;
	client->length = client->size = client->sent = 0;
	client->tries = 0;
	client->retry_ns = 0;
	client->is_late = false;
	client->error = try_open(client);
	return client->error;
}

static void disconnect(struct ctl_client *client)
{
	if (client->fd >= 0)
		close(client->fd);
	client->fd = -1;
}

void ctl_client_close(struct ctl_client *client)
{
	disconnect(client);
	free(client->answer);
	client->answer = NULL;
}

static void fail(struct ctl_client *client, int error)
{
	client->error = error;
	client->is_pending = client->is_late = false;
	ctl_client_close(client);
}

/*
 * A program that closes descriptors it does not know takes the server's too, which then makes a
 * new socket: whoever was in between is cut off without a word, and is right to come again.
 */
static void try_again(struct ctl_client *client, int64_t now_ns, int error)
{
	if (client->length || client->tries++ == MAX_TRIES) {
		fail(client, error);
		return;
	}
	disconnect(client);
	client->sent = 0;
	client->retry_ns = now_ns + RETRY_NS;
}

static void reconnect(struct ctl_client *client, int64_t now_ns)
{
	int error = try_open(client);

	if (error == -EAGAIN)
		client->retry_ns = now_ns + RETRY_NS;
	else if (error == -ECONNREFUSED || error == -ENOENT)
		try_again(client, now_ns, error);
	else if (error)
		fail(client, error);
}

static bool make_room(struct ctl_client *client, size_t max_bytes)
{
	size_t size = client->size ? client->size * 2 : FIRST_BYTES;
	char *answer;

	if (client->length + 1 < client->size)
		return true;
	if (client->length >= max_bytes) {
		fail(client, -EMSGSIZE);
		return false;
	}
	if (size > max_bytes + 1)
		size = max_bytes + 1;
	answer = realloc(client->answer, size);
	if (!answer) {
		fail(client, -ENOMEM);
		return false;
	}
	client->answer = answer;
	client->size = size;
	return true;
}

static void receive(struct ctl_client *client, size_t max_bytes, int64_t now_ns)
{
	char *end;
	bool is_all;
	ssize_t n;

	if (!make_room(client, max_bytes))
		return;
	n = recv(client->fd, client->answer + client->length, client->size - client->length - 1, 0);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0) {
		try_again(client, now_ns, -ECONNRESET);
		return;
	}
	end = memchr(client->answer + client->length, '\n', (size_t)n);
	client->length += (size_t)n;
	client->answer[client->length] = '\0';
	if (!end)
		return;
	*end = '\0';
	is_all = end + 1 == client->answer + client->length;
	client->length = (size_t)(end - client->answer);
	client->error = 0;
	client->is_pending = client->is_late = false;
	/* Who says more than it was asked would go on with it in its next answer. */
	if (!client->is_kept || !is_all)
		disconnect(client);
}

static void step(struct ctl_client *client, const char *request, size_t max_bytes, int64_t now_ns)
{
	size_t length = strlen(request);
	ssize_t n;

	if (client->sent == length) {
		receive(client, max_bytes, now_ns);
		return;
	}
	n = send(client->fd, request + client->sent, length - client->sent, MSG_NOSIGNAL);
	if (n >= 0)
		client->sent += (size_t)n;
	else if (errno != EAGAIN && errno != EINTR)
		try_again(client, now_ns, -ECONNRESET);
}

/* Fills what poll() wants to know; how many clients are waited for, and until when. */
static size_t fill(const struct ctl_client *clients, size_t n, struct pollfd *fds, size_t length,
	int64_t *until_ns)
{
	size_t n_pending = 0;

	for (size_t i = 0; i < n; i++) {
		const struct ctl_client *client = &clients[i];

		fds[i] = (struct pollfd){.fd = client->is_pending ? client->fd : -1};
		fds[i].events = client->sent == length ? POLLIN : POLLOUT;
		n_pending += client->is_pending && !client->is_late;
		if (client->is_pending && client->fd < 0 && client->retry_ns < *until_ns)
			*until_ns = client->retry_ns;
	}
	return n_pending;
}

static int wait_ms(int64_t until_ns)
{
	int64_t left_ns = until_ns - ctl_client_now_ns();

	return left_ns <= 0 ? 0 : (int)(left_ns / 1000000 + 1);
}

static bool is_any_late(const struct ctl_client *clients, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (clients[i].is_late)
			return true;
	return false;
}

static void ask_all(struct ctl_client *clients, size_t n, struct pollfd *fds, const char *request,
	size_t max_bytes, int64_t deadline_ns)
{
	bool is_first = true;

	for (int64_t now_ns = ctl_client_now_ns(); now_ns < deadline_ns; now_ns = ctl_client_now_ns()) {
		int64_t until_ns = deadline_ns;
		size_t n_pending = fill(clients, n, fds, strlen(request), &until_ns);

		/* Those that are late may have answered meanwhile. */
		if (!n_pending && !(is_first && is_any_late(clients, n)))
			return;
		is_first = false;
		if (poll(fds, n, n_pending ? wait_ms(until_ns) : 0) < 0)
			continue;
		for (size_t i = 0; i < n; i++) {
			struct ctl_client *client = &clients[i];

			if (!client->is_pending)
				continue;
			if (fds[i].revents)
				step(client, request, max_bytes, now_ns);
			else if (client->fd < 0 && ctl_client_now_ns() >= client->retry_ns)
				reconnect(client, ctl_client_now_ns());
		}
	}
}

static void begin(struct ctl_client *client)
{
	client->is_pending = client->is_late || client->fd >= 0 || client->error == -EAGAIN;
	if (client->is_late)
		return;
	free(client->answer);
	client->answer = NULL;
	client->length = client->size = client->sent = 0;
	client->tries = 0;
}

static void miss(struct ctl_client *client, int error)
{
	if (!client->is_kept || error != -ETIMEDOUT) {
		fail(client, error);
		return;
	}
	client->error = error;
	client->is_pending = false;
	client->is_late = true;
}

void ctl_client_ask(
	struct ctl_client *clients, size_t n, const char *request, size_t max_bytes, int timeout_ms)
{
	int64_t deadline_ns = ctl_client_now_ns() + timeout_ms * INT64_C(1000000);
	struct pollfd *fds = calloc(n ? n : 1, sizeof(*fds));

	for (size_t i = 0; i < n; i++)
		begin(&clients[i]);
	if (fds)
		ask_all(clients, n, fds, request, max_bytes, deadline_ns);
	for (size_t i = 0; i < n; i++)
		if (clients[i].is_pending)
			miss(&clients[i], fds ? -ETIMEDOUT : -ENOMEM);
	free(fds);
}
