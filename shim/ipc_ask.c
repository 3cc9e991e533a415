/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * What an importer asks the process that exported a block. What comes back is not to be trusted, and the wait for it is
 * bounded: the other process may be stopped, or gone, or somebody else by now.
 */

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "ctl_abstract.h"
#include "ctl_ask.h"
#include "ctl_proto.h"
#include "ipc.h"

enum { LIMIT_MS = 5000, BACKLOG_PAUSE_MS = 5, ANSWER_MAX = 512 };

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

int gp_ipc_parse(const char *line, struct gp_ipc_place *ret_place)
{
	static const char begin[] = "{\"schema\":\"gpupool.ipc/1\",\"handle\":\"";
	static const char refusal[] = "{\"schema\":\"gpupool.error/1\",\"reason\":\"unknown\"";
	const size_t digits = 2 * sizeof(ret_place->segment);

	if (strncmp(line, refusal, sizeof(refusal) - 1) == 0)
		return -ENOENT;
	if (strncmp(line, begin, sizeof(begin) - 1) != 0)
		return -EPROTO;
	line += sizeof(begin) - 1;
	if (strnlen(line, digits) < digits || !read_handle(line, &ret_place->segment))
		return -EPROTO;
	line += digits;
	if (!gp_ask_take_text(&line, "\",\"offset\":") || !gp_ask_take_number(&line, &ret_place->offset) ||
		!gp_ask_take_text(&line, ",\"bytes\":") || !gp_ask_take_number(&line, &ret_place->bytes) ||
		strcmp(line, "}"))
		return -EPROTO;
	if (!ret_place->bytes || ret_place->offset > UINT64_MAX - ret_place->bytes)
		return -EPROTO;
	return 0;
}

/* Until the descriptor is ready for the events; 0, -ETIMEDOUT or -errno. */
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

/* A connection to the socket of that name in an open directory, or -errno. */
static int connect_in(int dir_fd, const char *name, int64_t end_ms)
{
	int fd;

	/* A full backlog gives no event to wait for. */
	while ((fd = gp_ctl_connect(dir_fd, name)) == -EINTR || (fd == -EAGAIN && gp_ask_now_ms() < end_ms))
		poll(NULL, 0, BACKLOG_PAUSE_MS);
	return fd == -ECONNREFUSED ? -ENOENT : fd;
}

struct connection {
	char name[GP_CTL_NAME_MAX];
	int64_t end_ms;
	int result; /* a descriptor, or -errno; -ENOENT: look on */
};

static bool look_in(void *arg, int dir_fd)
{
	struct connection *connection = arg;

	connection->result = connect_in(dir_fd, connection->name, connection->end_ms);
	return connection->result == -ENOENT;
}

static bool look_at(void *arg, const struct gp_ctl_abstract *found)
{
	struct connection *connection = arg;
	char name[GP_CTL_NAME_MAX];
	int fd;

	gp_ctl_name_format(name, found->pid, found->start_ticks);
	if (found->uid != geteuid() || strcmp(name, connection->name) != 0)
		return true;
	fd = gp_ctl_connect(GP_CTL_NO_DIR, found->name);
	/* Another user can take such a name as well, and not answer, so none of them is waited for here. */
	if (fd >= 0 || fd == -EAGAIN)
		connection->result = fd;
	return fd < 0;
}

static void look_at_abstract(struct connection *connection)
{
	do {
		connection->result = -ENOENT;
		gp_ctl_abstract_each(look_at, connection);
		if (connection->result != -EAGAIN)
			return;
		poll(NULL, 0, BACKLOG_PAUSE_MS);
	} while (gp_ask_now_ms() < connection->end_ms);
}

/* To the process's socket, in whichever of the places that this process knows, or without a file. */
static int connect_to(pid_t pid, uint64_t start_ticks, int64_t end_ms)
{
	struct connection connection = {.end_ms = end_ms, .result = -ENOENT};

	gp_ctl_name_format(connection.name, pid, start_ticks);
	gp_ask_each_dir(look_in, &connection);
	if (connection.result == -ENOENT)
		look_at_abstract(&connection);
	return connection.result;
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

/* One line, without its end, and without a NUL in it. */
static int receive_line(int fd, char line[static ANSWER_MAX], int64_t end_ms)
{
	size_t used = 0;

	for (;;) {
		ssize_t n = recv(fd, line + used, ANSWER_MAX - used, 0);
		char *end;
		int error;

		if (n == 0)
			return -ENOENT; /* it ended */
		if (n < 0 && errno != EAGAIN && errno != EINTR)
			return -errno;
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

static int ask(pid_t pid, uint64_t start_ticks, uint64_t nonce, uint64_t serial, struct gp_ipc_place *ret_place)
{
	int64_t end_ms = gp_ask_now_ms() + LIMIT_MS;
	char line[ANSWER_MAX];
	int error, length, fd = connect_to(pid, start_ticks, end_ms);

	if (fd < 0)
		return fd;
	length = snprintf(line, sizeof(line), "ipc %" PRIu64 " %" PRIu64 "\n", nonce, serial);
	error = send_all(fd, line, (size_t)length, end_ms);
	if (!error)
		error = receive_line(fd, line, end_ms);
	close(fd);
	return error ? error : gp_ipc_parse(line, ret_place);
}

int gp_ipc_ask(pid_t pid, uint64_t start_ticks, uint64_t nonce, uint64_t serial, struct gp_ipc_place *ret_place)
{
	int cancel_state, error;

	/* A thread must not vanish in here with a descriptor open. */
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state);
	error = ask(pid, start_ticks, nonce, serial, ret_place);
	pthread_setcancelstate(cancel_state, NULL);
	return error;
}
