/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Asks the process that exported a block where the block is. The answer is not trusted, and the wait for it is bounded:
 * the process may be stopped, it may have ended, or another process may have its id by now.
 */

#include "ipc_ask.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/ctl_abstract.h"
#include "common/ctl_proto.h"
#include "shim/ctl/ctl_ask.h"

/* CHUNK_MS: more time for each chunk that came; the exporter's driver takes about 1 ms to make its descriptor. */
enum {
	LIMIT_MS = 5000,
	CHUNK_MS = 20,
	BACKLOG_PAUSE_MS = 5,
	HANG_UPS_MAX = 100, /* in a row */
	HANG_UP_PAUSE_MS = 5,
	REQUEST_MAX = 128,
	ANSWER_MAX = 512,
};

static int digit_of(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool read_handle(const char *text, CUipcMemHandle *handle)
{
	unsigned char *bytes = (unsigned char *)handle;

	for (size_t i = 0; i < sizeof(*handle); i++) {
		int high = digit_of(text[2 * i]), low = high < 0 ? -1 : digit_of(text[2 * i + 1]);

		if (low < 0)
			return false;
		bytes[i] = (unsigned char)(high << 4 | low);
	}
	return true;
}

static bool is_refusal(const char *line, const char *reason)
{
	return gp_ask_take_text(&line, "{\"schema\":\"gpupool.error/1\",\"reason\":\"") &&
	       gp_ask_take_text(&line, reason) && *line == '"';
}

int gp_ipc_parse(const char *line, struct gp_ipc_reply *ret_reply)
{
	const size_t digits = 2 * sizeof(ret_reply->segment);

	if (is_refusal(line, "unknown"))
		return -ENOENT;
	if (!gp_ask_take_text(&line, "{\"schema\":\"gpupool.ipc/1\",\"handle\":\""))
		return -EPROTO;
	if (strnlen(line, digits) < digits || !read_handle(line, &ret_reply->segment))
		return -EPROTO;
	line += digits;
	if (!gp_ask_take_text(&line, "\",\"offset\":") || !gp_ask_take_number(&line, &ret_reply->offset) ||
		!gp_ask_take_text(&line, ",\"bytes\":") || !gp_ask_take_number(&line, &ret_reply->bytes) ||
		strcmp(line, "}"))
		return -EPROTO;
	if (!ret_reply->bytes || ret_reply->offset > UINT64_MAX - ret_reply->bytes)
		return -EPROTO;
	return 0;
}

int gp_ipc_parse_chunk(const char *line, struct gp_ipc_chunk *ret_chunk)
{
	struct gp_ipc_chunk *chunk = ret_chunk;

	if (is_refusal(line, "unknown"))
		return -ENOENT;
	if (is_refusal(line, "failed"))
		return -EIO;
	if (is_refusal(line, "permission"))
		return -EPERM;
	if (!gp_ask_take_text(&line, "{\"schema\":\"gpupool.chunk/1\",\"bytes\":") ||
		!gp_ask_take_number(&line, &chunk->bytes) || !gp_ask_take_text(&line, ",\"span_bytes\":") ||
		!gp_ask_take_number(&line, &chunk->span_bytes) || !gp_ask_take_text(&line, ",\"offset\":") ||
		!gp_ask_take_number(&line, &chunk->offset) || !gp_ask_take_text(&line, ",\"block_bytes\":") ||
		!gp_ask_take_number(&line, &chunk->block_bytes) || strcmp(line, "}"))
		return -EPROTO;
	if (!chunk->bytes || chunk->bytes > chunk->span_bytes || !chunk->block_bytes ||
		chunk->block_bytes > chunk->span_bytes || chunk->offset > chunk->span_bytes - chunk->block_bytes)
		return -EPROTO;
	return 0;
}

/* Waits until the descriptor is ready for the events. Returns 0, -ETIMEDOUT or -errno. */
static int wait_for(int fd, short events, int64_t end_ms)
{
	struct pollfd poll_fd = {.fd = fd, .events = events};

	for (;;) {
		int64_t left = end_ms - gp_ask_now_ms();
		int r = left > 0 ? poll(&poll_fd, 1, (int)left) : 0;

		if (r > 0)
			return 0;
		if (r == 0)
			return -ETIMEDOUT;
		if (errno != EINTR)
			return -errno;
	}
}

/* Connects to the socket of that name in an open directory. Returns a descriptor or -errno. */
static int connect_in(int dir_fd, const char *name, int64_t end_ms)
{
	int fd;

	/* -EAGAIN: the socket's backlog is full. poll() cannot wait for room in it. */
	while ((fd = gp_ctl_connect(dir_fd, name)) == -EINTR || (fd == -EAGAIN && gp_ask_now_ms() < end_ms))
		poll(NULL, 0, BACKLOG_PAUSE_MS);
	return fd == -ECONNREFUSED ? -ENOENT : fd;
}

struct connection {
	char name[GP_CTL_NAME_MAX];
	int64_t end_ms;
	int result; /* a descriptor, or -errno; -ENOENT: not found yet */
};

static bool try_dir(void *arg, int dir_fd)
{
	struct connection *connection = arg;

	connection->result = connect_in(dir_fd, connection->name, connection->end_ms);
	return connection->result == -ENOENT;
}

static bool try_abstract(void *arg, const struct gp_ctl_abstract *found)
{
	struct connection *connection = arg;
	char name[GP_CTL_NAME_MAX];
	int fd;

	gp_ctl_name_format(name, found->pid, found->start_ticks);
	if (found->uid != geteuid() || strcmp(name, connection->name) != 0)
		return true;
	fd = gp_ctl_connect(GP_CTL_NO_DIR, found->name);
	/* Any user can bind a socket of this name and never answer, so do not wait for one socket here. */
	if (fd >= 0 || fd == -EAGAIN)
		connection->result = fd;
	return fd < 0;
}

static void try_all_abstract(struct connection *connection)
{
	do {
		connection->result = -ENOENT;
		gp_ctl_abstract_each(try_abstract, connection);
		if (connection->result != -EAGAIN)
			return;
		poll(NULL, 0, BACKLOG_PAUSE_MS);
	} while (gp_ask_now_ms() < connection->end_ms);
}

/* Without a descriptor no directory can be looked into, so no process is found. */
static bool is_any_fd_left(void)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd >= 0)
		close(fd);
	return fd >= 0;
}

/* Connects to the process's socket: a file in a socket directory that this process knows, or an abstract socket. */
static int connect_to(pid_t pid, uint64_t start_ticks, int64_t end_ms)
{
	struct connection connection = {.end_ms = end_ms, .result = -ENOENT};

	gp_ctl_name_format(connection.name, pid, start_ticks);
	gp_ask_each_dir(try_dir, &connection);
	if (connection.result == -ENOENT)
		try_all_abstract(&connection);
	return connection.result == -ENOENT && !is_any_fd_left() ? -EMFILE : connection.result;
}

static int send_all(int fd, const char *text, size_t length, int64_t end_ms)
{
	while (length) {
		ssize_t n = send(fd, text, length, MSG_NOSIGNAL);
		int error;

		if (n >= 0) {
			text += n;
			length -= (size_t)n;
			continue;
		}
		if (errno != EAGAIN && errno != EINTR)
			return -errno;
		error = wait_for(fd, POLLOUT, end_ms);
		if (error)
			return error;
	}
	return 0;
}

/* Room for more descriptors than a correct answer has, so that all of them can be closed. */
enum { FDS_MAX = 8 };

union control {
	struct cmsghdr align;
	char bytes[CMSG_SPACE(FDS_MAX * sizeof(int))];
};

/*
 * Takes the descriptors of a message. Returns 0, -EMFILE if the kernel dropped some, or -EPROTO for a second one: then
 * all are closed.
 */
static int take_fds(struct msghdr *message, int *fd)
{
	int error = message->msg_flags & MSG_CTRUNC ? -EMFILE : 0;

	for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c; c = CMSG_NXTHDR(message, c)) {
		size_t n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);

		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		for (size_t i = 0; i < n; i++) {
			int one;

			memcpy(&one, CMSG_DATA(c) + i * sizeof(one), sizeof(one));
			if (*fd < 0) {
				*fd = one;
				continue;
			}
			close(one);
			error = -EPROTO;
		}
	}
	return error;
}

/*
 * Receives as recv does. The kernel discards descriptors unless *ret_fd is to have one, which starts at -1. Returns
 * -errno on failure.
 */
static ssize_t receive_some(int fd, void *into, size_t size, int *ret_fd)
{
	union control control;
	struct iovec part = {into, size};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
	ssize_t n;
	int error;

	if (ret_fd) {
		message.msg_control = &control;
		message.msg_controllen = sizeof(control);
	}
	n = recvmsg(fd, &message, MSG_CMSG_CLOEXEC);
	if (n < 0)
		return -errno;
	error = ret_fd ? take_fds(&message, ret_fd) : 0;
	return error ? error : n;
}

/*
 * Receives one line, without its newline, and the descriptor that comes with it unless ret_fd is NULL. Refuses a line
 * with a NUL in it.
 */
static int receive_line(int fd, char line[static ANSWER_MAX], int *ret_fd, int64_t end_ms)
{
	size_t used = 0;

	for (;;) {
		ssize_t n = receive_some(fd, line + used, ANSWER_MAX - used, ret_fd);
		char *end;
		int error;

		if (n == 0)
			return used ? -ENOENT : -ECONNRESET; /* the process closed the connection */
		if (n < 0 && n != -EAGAIN && n != -EINTR)
			return (int)n;
		used += n > 0 ? (size_t)n : 0;
		end = memchr(line, '\n', used);
		if (end) {
			*end = '\0';
			return strlen(line) == (size_t)(end - line) ? 0 : -EPROTO;
		}
		if (used == ANSWER_MAX)
			return -EPROTO;
		error = wait_for(fd, POLLIN, end_ms);
		if (error)
			return error;
	}
}

/* The exporting process, while it is being asked. */
struct exporter {
	pid_t pid;
	uint64_t start_ticks;
	int64_t end_ms;
	int fd;              /* of the connection; -1: none */
	unsigned n_hang_ups; /* since the last answer */
};

static void hang_up(struct exporter *exporter)
{
	if (exporter->fd >= 0)
		close(exporter->fd);
	exporter->fd = -1;
}

static int ask_once(struct exporter *exporter, const char *request, char line[static ANSWER_MAX], int *ret_fd)
{
	int error;

	if (exporter->fd < 0)
		exporter->fd = connect_to(exporter->pid, exporter->start_ticks, exporter->end_ms);
	if (exporter->fd < 0)
		return exporter->fd;
	error = send_all(exporter->fd, request, strlen(request), exporter->end_ms);
	return error ? error : receive_line(exporter->fd, line, ret_fd, exporter->end_ms);
}

/*
 * Sends a request and receives the answer. A process that has many clients hangs up on some of them, also between two
 * requests, so this asks again. A process that has ended refuses the next connection.
 */
static int ask_line(struct exporter *exporter, const char *request, char line[static ANSWER_MAX], int *ret_fd)
{
	int error;

	while ((error = ask_once(exporter, request, line, ret_fd)) == -ECONNRESET || error == -EPIPE) {
		hang_up(exporter);
		if (++exporter->n_hang_ups > HANG_UPS_MAX || gp_ask_now_ms() >= exporter->end_ms)
			return -ENOENT;
		poll(NULL, 0, HANG_UP_PAUSE_MS);
	}
	exporter->n_hang_ups = 0;
	return error;
}

static int ask(struct exporter *exporter, uint64_t nonce, uint64_t serial, struct gp_ipc_reply *ret_reply)
{
	char request[REQUEST_MAX], line[ANSWER_MAX];
	int error;

	snprintf(request, sizeof(request), "ipc %" PRIu64 " %" PRIu64 "\n", nonce, serial);
	error = ask_line(exporter, request, line, NULL);
	return error ? error : gp_ipc_parse(line, ret_reply);
}

static int ask_chunk(struct exporter *exporter, const uint64_t words[static 3], struct gp_ipc_chunk *chunk)
{
	char request[REQUEST_MAX], line[ANSWER_MAX];
	int error;

	snprintf(request, sizeof(request), "chunk %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", words[0],
		words[1], words[2], chunk->at);
	chunk->fd = -1;
	error = ask_line(exporter, request, line, &chunk->fd);
	if (!error)
		error = gp_ipc_parse_chunk(line, chunk);
	return !error && chunk->fd < 0 ? -EPROTO : error;
}

static bool is_of_same_block(const struct gp_ipc_chunk *one, const struct gp_ipc_chunk *other)
{
	return one->span_bytes == other->span_bytes && one->offset == other->offset &&
	       one->block_bytes == other->block_bytes;
}

/*
 * Asks for one chunk after the other, so that both processes need one descriptor at a time. A block can have thousands
 * of chunks, so the limit is for the waits alone, and the time of fn does not count.
 */
static int ask_each(struct exporter *exporter, const uint64_t words[static 3],
	int (*fn)(void *arg, const struct gp_ipc_chunk *chunk), void *arg)
{
	struct gp_ipc_chunk first = {.at = 0}, chunk = first;
	int error;

	do {
		error = ask_chunk(exporter, words, &chunk);
		if (!error && !chunk.at)
			first = chunk;
		if (!error && (!is_of_same_block(&chunk, &first) || chunk.bytes > chunk.span_bytes - chunk.at))
			error = -EPROTO;
		if (!error) {
			int64_t start_ms = gp_ask_now_ms();

			error = fn(arg, &chunk);
			exporter->end_ms += gp_ask_now_ms() - start_ms + CHUNK_MS;
		}
		if (chunk.fd >= 0)
			close(chunk.fd);
		chunk.at += chunk.bytes;
	} while (!error && chunk.at < chunk.span_bytes);
	return error;
}

static struct exporter exporter_of(pid_t pid, uint64_t start_ticks)
{
	return (struct exporter){
		.pid = pid, .start_ticks = start_ticks, .end_ms = gp_ask_now_ms() + LIMIT_MS, .fd = -1};
}

/* A thread must not be cancelled while it has a descriptor open. */
int gp_ipc_ask_chunks(pid_t pid, uint64_t start_ticks, const uint64_t words[static 3],
	int (*fn)(void *arg, const struct gp_ipc_chunk *chunk), void *arg)
{
	struct exporter exporter = exporter_of(pid, start_ticks);
	int cancel_state, error;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state);
	error = ask_each(&exporter, words, fn, arg);
	hang_up(&exporter);
	pthread_setcancelstate(cancel_state, NULL);
	return error;
}

int gp_ipc_ask(pid_t pid, uint64_t start_ticks, uint64_t nonce, uint64_t serial, struct gp_ipc_reply *ret_reply)
{
	struct exporter exporter = exporter_of(pid, start_ticks);
	int cancel_state, error;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state);
	error = ask(&exporter, nonce, serial, ret_reply);
	hang_up(&exporter);
	pthread_setcancelstate(cancel_state, NULL);
	return error;
}
