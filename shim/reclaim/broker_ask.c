/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "broker_ask.h"

#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "common/broker.h"
#include "processes.h"
#include "shim/ctl/ctl_ask.h"

enum { BACKOFF_MS = 60000 };

static _Atomic int64_t silent_until_ms;

static enum gp_broker_state parse(const char *line, struct gp_broker_answer *ret)
{
	struct gp_process answer = {0};
	int error = gp_processes_parse(line, &answer);

	ret->bytes = answer.bytes;
	ret->held_bytes = answer.held_bytes;
	if (!error)
		return GP_BROKER_ANSWERED;
	if (error != -EPERM)
		return GP_BROKER_INVALID;
	return gp_ask_take_text(&line, "{\"schema\":\"gpupool.error/1\",\"reason\":\"" GP_BROKER_BUSY "\"")
		       ? GP_BROKER_IS_BUSY
		       : GP_BROKER_REFUSED;
}

/* Receives a line, without its end. Returns GP_BROKER_ANSWERED if there is one. */
static enum gp_broker_state receive(int fd, char line[static GP_BROKER_ANSWER_MAX], int64_t end_ms)
{
	size_t length = 0;

	while (length < GP_BROKER_ANSWER_MAX - 1) {
		int64_t left = end_ms - gp_ask_now_ms();
		struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
		ssize_t n;
		char *end;

		if (left <= 0)
			return GP_BROKER_SILENT;
		if (poll(&poll_fd, 1, (int)left) <= 0)
			continue;
		n = recv(fd, line + length, GP_BROKER_ANSWER_MAX - 1 - length, MSG_DONTWAIT);
		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			continue;
		if (n <= 0)
			break;
		length += (size_t)n;
		line[length] = '\0';
		end = strchr(line, '\n');
		if (end) {
			*end = '\0';
			return GP_BROKER_ANSWERED;
		}
	}
	return GP_BROKER_INVALID;
}

int gp_broker_open(const char *dir, struct gp_broker_answer *ret)
{
	int saved_errno = errno, fd;

	*ret = (struct gp_broker_answer){GP_BROKER_NONE, 0, 0};
	if (gp_ask_now_ms() < atomic_load(&silent_until_ms)) {
		ret->state = GP_BROKER_SILENT;
		return -1;
	}
	fd = gp_broker_connect(dir);
	if (fd == -EAGAIN)
		ret->state = GP_BROKER_IS_BUSY;
	errno = saved_errno;
	return fd < 0 ? -1 : fd;
}

void gp_broker_ask(int fd, const char *request, int max_ms, struct gp_broker_answer *ret)
{
	int64_t end_ms = gp_ask_now_ms() + max_ms;
	size_t length = strlen(request);
	char line[GP_BROKER_ANSWER_MAX];
	int saved_errno = errno;

	*ret = (struct gp_broker_answer){GP_BROKER_INVALID, 0, 0};
	/* The request is far smaller than the send buffer of a new connection. */
	if (send(fd, request, length, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)length)
		ret->state = receive(fd, line, end_ms);
	if (ret->state == GP_BROKER_ANSWERED)
		ret->state = parse(line, ret);
	else if (ret->state == GP_BROKER_SILENT && max_ms == GP_BROKER_ASK_MS)
		atomic_store(&silent_until_ms, gp_ask_now_ms() + BACKOFF_MS);
	close(fd);
	errno = saved_errno;
}
