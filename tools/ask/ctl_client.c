/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "ctl_client.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "common/ctl_proto.h"

enum {
	FIRST_BYTES = 16 << 10,
	MAX_TRIES = 5,
};

#define RETRY_NS INT64_C(20000000)

/* When silent clients are first looked at, to see whether their processes are stopped; and the time between looks. */
#define FIRST_LOOK_NS INT64_C(20000000)
#define LOOK_AGAIN_NS INT64_C(100000000)

int64_t ctl_client_now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

/* Refuses a link or another file under a socket's name: its owner could make root connect to any socket. */
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

/* Changes only this thread, unlike seteuid(): the exporter has other threads. */
static bool set_effective_user(uid_t uid)
{
#ifdef SYS_setresuid32
	return syscall(SYS_setresuid32, -1, uid, -1) == 0;
#else
	return syscall(SYS_setresuid, -1, uid, -1) == 0;
#endif
}

static int connect_as_owner(const struct ctl_client *client)
{
	bool is_other = geteuid() == 0 && client->uid != 0 && set_effective_user(client->uid);
	struct sockaddr_un address;
	socklen_t length;
	int error = check_file(client);

	if (!error)
		error = gp_ctl_address(client->dir_fd, client->name, &address, &length);
	if (!error && connect(client->fd, (struct sockaddr *)&address, length) != 0)
		error = -errno;
	if (is_other && !set_effective_user(0))
		abort();
	/* The owner of the directory may not use the socket, so the socket is not the owner's. */
	return is_other && error == -EACCES ? -EPERM : error;
}

static int try_open(struct ctl_client *client)
{
	int error;

	client->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (client->fd < 0)
		return -errno;
	error = connect_as_owner(client);
	if (!error)
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
 * Connects again after RETRY_NS, at most MAX_TRIES times and only before the first byte of an answer. A program that
 * closes descriptors which it does not know closes the server's, too. The server then makes a new socket, and a client
 * that was connected to the old one must ask again.
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

/* True for errors that pass by themselves: the process will accept, or another connection will be closed. */
static bool is_transient(int error)
{
	return error == -EAGAIN || error == -EMFILE || error == -ENFILE;
}

static void reconnect(struct ctl_client *client, int64_t now_ns)
{
	int error = try_open(client);

	if (is_transient(error)) {
		client->error = error;
		client->retry_ns = now_ns + RETRY_NS;
	} else if (error == -ECONNREFUSED || error == -ENOENT) {
		try_again(client, now_ns, error);
	} else if (error) {
		fail(client, error);
	}
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
	/* Bytes behind the answer would be taken for the beginning of the next one. */
	if (!client->is_kept || !is_all)
		disconnect(client);
}

static void send_or_receive(struct ctl_client *client, const char *request, size_t max_bytes, int64_t now_ns)
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

/* The clients that are being asked. */
struct asking {
	const struct ctl_round *round;
	struct ctl_client **clients;
	struct pollfd *fds;
	size_t n;
	int64_t look_ns; /* when to look for stopped processes; INT64_MAX: never */
};

static void begin_request(struct ctl_client *client, int64_t now_ns)
{
	client->is_pending = client->is_late || client->fd >= 0 || is_transient(client->error);
	if (client->is_late)
		return;
	free(client->answer);
	client->answer = NULL;
	client->length = client->size = client->sent = 0;
	client->tries = 0;
	client->asked_ns = now_ns;
}

static void add_clients(struct asking *asking, int64_t now_ns)
{
	const struct ctl_round *round = asking->round;
	struct ctl_client *client;

	while (asking->n < round->window && (client = round->next(round->arg)) != NULL) {
		begin_request(client, now_ns);
		if (client->is_pending)
			asking->clients[asking->n++] = client;
		else
			round->done(round->arg, client);
	}
}

static void remove_done(struct asking *asking)
{
	const struct ctl_round *round = asking->round;
	size_t n = 0;

	for (size_t i = 0; i < asking->n; i++) {
		struct ctl_client *client = asking->clients[i];

		if (client->is_pending)
			asking->clients[n++] = client;
		else
			round->done(round->arg, client);
	}
	asking->n = n;
}

/* Fills the array for poll(), and lowers *until_ns to the first timeout. Returns the number of clients to wait for. */
static size_t fill_poll(struct asking *asking, int64_t *until_ns)
{
	size_t length = strlen(asking->round->request), n_pending = 0;

	for (size_t i = 0; i < asking->n; i++) {
		const struct ctl_client *client = asking->clients[i];
		int64_t timeout_end_ns = client->asked_ns + asking->round->timeout_ns;

		asking->fds[i] = (struct pollfd){.fd = client->fd};
		asking->fds[i].events = client->sent == length ? POLLIN : POLLOUT;
		n_pending += !client->is_late;
		if (client->fd < 0 && client->retry_ns < *until_ns)
			*until_ns = client->retry_ns;
		if (!client->is_late && timeout_end_ns < *until_ns &&
			asking->round->is_slot_needed(asking->round->arg, client))
			*until_ns = timeout_end_ns;
	}
	if (n_pending && asking->look_ns < *until_ns)
		*until_ns = asking->look_ns;
	return n_pending;
}

static int wait_ms(int64_t until_ns)
{
	int64_t left_ns = until_ns - ctl_client_now_ns();

	return left_ns <= 0 ? 0 : (int)(left_ns / 1000000 + 1);
}

static void send_or_receive_all(struct asking *asking, int64_t now_ns)
{
	const struct ctl_round *round = asking->round;

	for (size_t i = 0; i < asking->n; i++) {
		struct ctl_client *client = asking->clients[i];

		if (asking->fds[i].revents)
			send_or_receive(client, round->request, round->max_bytes, now_ns);
		else if (client->fd < 0 && ctl_client_now_ns() >= client->retry_ns)
			reconnect(client, ctl_client_now_ns());
	}
}

static void drop_slow(struct asking *asking)
{
	const struct ctl_round *round = asking->round;
	int64_t now_ns = ctl_client_now_ns();
	size_t n = 0;

	for (size_t i = 0; i < asking->n; i++) {
		struct ctl_client *client = asking->clients[i];

		if (now_ns - client->asked_ns < round->timeout_ns || !round->is_slot_needed(round->arg, client)) {
			asking->clients[n++] = client;
			continue;
		}
		fail(client, -EBUSY);
		round->done(round->arg, client);
	}
	asking->n = n;
}

static void give_up_late(struct ctl_client *client, int error)
{
	if (client->fd < 0 && is_transient(client->error) && client->error != -EAGAIN)
		error = client->error;
	if (!client->is_kept || error != -ETIMEDOUT) {
		fail(client, error);
		return;
	}
	client->error = error;
	client->is_pending = false;
	client->is_late = true;
}

/* A stopped process does not answer before it is continued, so nothing is gained by waiting for it. */
static void give_up_stopped(struct asking *asking)
{
	const struct ctl_round *round = asking->round;
	int64_t now_ns = ctl_client_now_ns();
	size_t n = 0;

	if (now_ns < asking->look_ns)
		return;
	asking->look_ns = now_ns + LOOK_AGAIN_NS;
	for (size_t i = 0; i < asking->n; i++) {
		struct ctl_client *client = asking->clients[i];

		if (client->is_late || now_ns - client->asked_ns < FIRST_LOOK_NS ||
			!round->is_stopped(round->arg, client)) {
			asking->clients[n++] = client;
			continue;
		}
		give_up_late(client, -ETIMEDOUT);
		round->done(round->arg, client);
	}
	asking->n = n;
}

/* Returns 0, or the -errno of a failed poll(). */
static int ask_all(struct asking *asking)
{
	int64_t deadline_ns = asking->round->deadline_ns;
	bool is_first = true;

	for (int64_t now_ns = ctl_client_now_ns(); now_ns < deadline_ns; now_ns = ctl_client_now_ns()) {
		int64_t until_ns = deadline_ns;
		size_t n_pending;

		add_clients(asking, now_ns);
		n_pending = fill_poll(asking, &until_ns);
		/* Late clients alone are polled once: their answers may have arrived since the last round. */
		if (!n_pending && !(is_first && asking->n))
			return 0;
		is_first = false;
		if (poll(asking->fds, asking->n, n_pending ? wait_ms(until_ns) : 0) >= 0) {
			send_or_receive_all(asking, now_ns);
			remove_done(asking);
			drop_slow(asking);
			give_up_stopped(asking);
		} else if (errno != EINTR) {
			return -errno;
		}
	}
	return 0;
}

void ctl_client_ask(const struct ctl_round *round)
{
	struct asking asking = {
		.round = round,
		.clients = calloc(round->window, sizeof(*asking.clients)),
		.fds = calloc(round->window, sizeof(*asking.fds)),
		.look_ns = round->is_stopped ? ctl_client_now_ns() + FIRST_LOOK_NS : INT64_MAX,
	};
	int error = asking.clients && asking.fds ? ask_all(&asking) : -ENOMEM;

	for (size_t i = 0; i < asking.n; i++) {
		give_up_late(asking.clients[i], error ? error : -ETIMEDOUT);
		round->done(round->arg, asking.clients[i]);
	}
	free(asking.clients);
	free(asking.fds);
}
