/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "sockets.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fuzz.h"
#include "common/ctl_proto.h"

enum { CLIENTS_MAX = 8, CUTS_MAX = 256, FDS_MAX = 4 };

struct cut {
	size_t at;
	bool hangs_up;
	unsigned n_fds; /* sent with the bytes that follow */
};

static struct peer {
	int listener;
	char name[GP_CTL_NAME_MAX];
	int clients[CLIENTS_MAX];
	size_t n_clients, n_done; /* connections accepted, and ended */
	char script[SCRIPT_MAX];
	size_t length, sent;
	struct cut cuts[CUTS_MAX];
	size_t n_cuts, n_passed;
	unsigned n_fds; /* to be sent with the next bytes */
} peers[SOCKETS_MAX];

static int dir_fd = -1;
static char dir_path[64];
static int64_t now_ns;

static void remove_directory(void)
{
	for (unsigned i = 0; i < SOCKETS_MAX; i++)
		unlinkat(dir_fd, peers[i].name, 0);
	rmdir(dir_path);
}

static void make_directory(void)
{
	strcpy(dir_path, "/tmp/gpupool-fuzz-XXXXXX");
	fuzz_require(mkdtemp(dir_path), "no directory");
	dir_fd = open(dir_path, O_PATH | O_CLOEXEC);
	fuzz_require(dir_fd >= 0 && !atexit(remove_directory), "no directory");
	setenv("GPUPOOL_RUNTIME_DIR", dir_path, 1);
	setenv("TMPDIR", dir_path, 1);
	unsetenv("XDG_RUNTIME_DIR");
}

uint64_t sockets_start_ticks(unsigned nth)
{
	static uint64_t start_ticks;
	char state;

	fuzz_require(start_ticks || !gp_ctl_process_stat(0, &start_ticks, &state), "no process");
	return start_ticks + nth;
}

static void listen_at(struct peer *peer, unsigned nth)
{
	struct sockaddr_un address;
	socklen_t length;

	gp_ctl_name_format(peer->name, getpid(), sockets_start_ticks(nth));
	peer->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	fuzz_require(!gp_ctl_address(dir_fd, peer->name, &address, &length) &&
			     !bind(peer->listener, (struct sockaddr *)&address, length) &&
			     !listen(peer->listener, CLIENTS_MAX),
		"no socket");
}

void sockets_open(unsigned n)
{
	if (dir_fd < 0)
		make_directory();
	for (unsigned i = 0; i < SOCKETS_MAX; i++) {
		struct peer *peer = &peers[i];
		bool is_listening = peer->name[0] != '\0';

		if (i < n && !is_listening)
			listen_at(peer, i);
		if (i >= n && is_listening) {
			unlinkat(dir_fd, peer->name, 0);
			close(peer->listener);
			peer->name[0] = '\0';
		}
		peer->n_clients = peer->n_done = 0;
		peer->length = peer->sent = 0;
		peer->n_cuts = peer->n_passed = peer->n_fds = 0;
	}
}

bool sockets_add_byte(unsigned nth, uint8_t byte)
{
	struct peer *peer = &peers[nth];

	if (peer->length == SCRIPT_MAX)
		return false;
	peer->script[peer->length++] = (char)byte;
	return true;
}

static void add_cut(struct peer *peer, bool hangs_up, unsigned n_fds)
{
	if (peer->n_cuts < CUTS_MAX)
		peer->cuts[peer->n_cuts++] = (struct cut){peer->length, hangs_up, n_fds};
}

void sockets_add_cut(unsigned nth)
{
	add_cut(&peers[nth], false, 0);
}

void sockets_add_hang_up(unsigned nth)
{
	add_cut(&peers[nth], true, 0);
}

void sockets_add_fds(unsigned nth, unsigned n)
{
	add_cut(&peers[nth], false, n < FDS_MAX ? n : FDS_MAX);
}

size_t sockets_bytes(void)
{
	size_t n = 0;

	for (unsigned i = 0; i < SOCKETS_MAX; i++)
		n += peers[i].length;
	return n;
}

const char *sockets_line(size_t *ret_length)
{
	const struct peer *peer = &peers[0];
	const char *end = memchr(peer->script, '\n', peer->length);

	if (!end || peer->n_cuts || peers[1].name[0] || peers[2].name[0])
		return NULL;
	*ret_length = (size_t)(end - peer->script);
	return peer->script;
}

static void take_client(struct peer *peer)
{
	if (peer->n_clients == CLIENTS_MAX)
		return;
	peer->clients[peer->n_clients] = accept4(peer->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	peer->n_clients += peer->clients[peer->n_clients] >= 0;
}

/* Sends bytes, with copies of the directory's descriptor. */
static ssize_t send_with_fds(int client, const char *bytes, size_t n, unsigned n_fds)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(FDS_MAX * sizeof(int))];
	} control = {0};
	struct iovec part = {(void *)bytes, n};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};

	if (n_fds) {
		message.msg_control = &control;
		message.msg_controllen = CMSG_SPACE(n_fds * sizeof(int));
		*CMSG_FIRSTHDR(&message) = (struct cmsghdr){
			.cmsg_len = CMSG_LEN(n_fds * sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
		for (unsigned i = 0; i < n_fds; i++)
			memcpy(CMSG_DATA(CMSG_FIRSTHDR(&message)) + i * sizeof(int), &dir_fd, sizeof(int));
	}
	return sendmsg(client, &message, MSG_NOSIGNAL);
}

/*
 * Sends the script up to the next cut, or as much as the socket takes. Returns true if more is to be sent in the same
 * step.
 */
static bool play(struct peer *peer)
{
	bool is_last = peer->n_passed == peer->n_cuts;
	size_t end = is_last ? peer->length : peer->cuts[peer->n_passed].at;
	ssize_t n = 0;
	int client;

	take_client(peer);
	if (peer->n_done == peer->n_clients)
		return false;
	client = peer->clients[peer->n_done];
	if (peer->sent < end)
		n = send_with_fds(client, peer->script + peer->sent, end - peer->sent, peer->n_fds);
	if (n > 0)
		peer->n_fds = 0;
	if (n < 0 && errno != EAGAIN)
		n = (ssize_t)(end - peer->sent); /* the client has closed the connection */
	peer->sent += n > 0 ? (size_t)n : 0;
	if (peer->sent < end || is_last)
		return false;
	peer->n_fds = peer->cuts[peer->n_passed].n_fds;
	if (peer->cuts[peer->n_passed++].hangs_up)
		close(peer->clients[peer->n_done++]);
	return peer->n_fds != 0;
}

int fuzz_poll(struct pollfd *fds, nfds_t n, int timeout_ms)
{
	int n_ready;

	for (unsigned i = 0; i < SOCKETS_MAX; i++)
		while (peers[i].name[0] && play(&peers[i]))
			;
	n_ready = poll(fds, n, 0);
	now_ns += n_ready ? 1000 : (timeout_ms > 0 ? timeout_ms : 1) * INT64_C(1000000);
	return n_ready;
}

int fuzz_clock_gettime(clockid_t clock, struct timespec *ret_time)
{
	*ret_time = (struct timespec){now_ns / 1000000000, now_ns % 1000000000};
	return 0;
}

void sockets_close(void)
{
	for (unsigned i = 0; i < SOCKETS_MAX; i++) {
		struct peer *peer = &peers[i];
		size_t n_before;

		if (!peer->name[0])
			continue;
		while (peer->n_done < peer->n_clients)
			close(peer->clients[peer->n_done++]);
		do {
			peer->n_clients = n_before = 0;
			take_client(peer);
			if (peer->n_clients)
				close(peer->clients[n_before]);
		} while (peer->n_clients);
	}
}
