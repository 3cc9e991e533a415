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

enum { CLIENTS_MAX = 8, CUTS_MAX = 256 };

struct cut {
	size_t at;
	bool hangs_up;
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
		peer->n_cuts = peer->n_passed = 0;
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

static void add_cut(struct peer *peer, bool hangs_up)
{
	if (peer->n_cuts < CUTS_MAX)
		peer->cuts[peer->n_cuts++] = (struct cut){peer->length, hangs_up};
}

void sockets_add_cut(unsigned nth)
{
	add_cut(&peers[nth], false);
}

void sockets_add_hang_up(unsigned nth)
{
	add_cut(&peers[nth], true);
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

/* Sends the script up to the next cut, or as much as the socket takes. */
static void play(struct peer *peer)
{
	bool is_last = peer->n_passed == peer->n_cuts;
	size_t end = is_last ? peer->length : peer->cuts[peer->n_passed].at;
	ssize_t n = 0;
	int client;

	take_client(peer);
	if (peer->n_done == peer->n_clients)
		return;
	client = peer->clients[peer->n_done];
	if (peer->sent < end)
		n = send(client, peer->script + peer->sent, end - peer->sent, MSG_NOSIGNAL);
	if (n < 0 && errno != EAGAIN)
		n = (ssize_t)(end - peer->sent); /* the client has closed the connection */
	peer->sent += n > 0 ? (size_t)n : 0;
	if (peer->sent < end || is_last)
		return;
	if (peer->cuts[peer->n_passed++].hangs_up)
		close(peer->clients[peer->n_done++]);
}

int fuzz_poll(struct pollfd *fds, nfds_t n, int timeout_ms)
{
	int n_ready;

	for (unsigned i = 0; i < SOCKETS_MAX; i++)
		if (peers[i].name[0])
			play(&peers[i]);
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
