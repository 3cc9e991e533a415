/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "ctl_conn.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { REQUESTS_A_STEP = 16 }; /* requests that a client is served before the server turns to the other clients */

void gp_ctl_conn_init(struct gp_ctl_conn *conn)
{
	conn->fd = conn->attached = GP_CTL_NO_FD;
	gp_json_init(&conn->out, GP_CTL_ANSWER_MAX);
}

void gp_ctl_conn_close(struct gp_ctl_conn *conn)
{
	gp_ctl_fd_close(&conn->fd);
	gp_ctl_fd_close(&conn->attached);
	gp_json_deinit(&conn->out);
}

void gp_ctl_conn_close_copies(struct gp_ctl_conn *conn)
{
	gp_ctl_fd_close(&conn->fd);
	gp_ctl_fd_close(&conn->attached);
}

static bool is_writing(const struct gp_ctl_conn *conn)
{
	return conn->sent < conn->answer_length;
}

/*
 * A request that is already in the buffer raises no event. So the server polls for POLLOUT, which is nearly always
 * ready.
 */
short gp_ctl_conn_events(const struct gp_ctl_conn *conn)
{
	bool busy = is_writing(conn) || conn->ends || memchr(conn->in, '\n', conn->received);

	return busy ? POLLOUT : POLLIN;
}

/*
 * Sends a part of the answer, with the attached descriptor if there is one. The descriptor is closed even if the send
 * fails. Its number may be another file's by now, which the client must not get.
 */
static ssize_t send_some(struct gp_ctl_conn *conn)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control = {0};
	struct iovec part = {(void *)(conn->answer + conn->sent), conn->answer_length - conn->sent};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};

	if (conn->attached.fd >= 0) {
		if (!gp_ctl_fd_is_ours(&conn->attached)) {
			errno = EBADF;
			return -1;
		}
		message.msg_control = &control;
		message.msg_controllen = sizeof(control.bytes);
		*CMSG_FIRSTHDR(&message) = (struct cmsghdr){
			.cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
		memcpy(CMSG_DATA(CMSG_FIRSTHDR(&message)), &conn->attached.fd, sizeof(int));
	}
	return sendmsg(conn->fd.fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* Returns false if the client has disconnected, or if the program has closed a descriptor of the connection. */
static bool write_answer(struct gp_ctl_conn *conn, int64_t now_ns)
{
	while (is_writing(conn)) {
		ssize_t n;

		if (!gp_ctl_fd_is_ours(&conn->fd))
			return false;
		n = send_some(conn);
		if (n < 0)
			return errno == EAGAIN || errno == EINTR;
		gp_ctl_fd_close(&conn->attached);
		conn->sent += (size_t)n;
		conn->active_ns = now_ns;
	}
	gp_json_deinit(&conn->out);
	return true;
}

/* Answers with an error, after which the connection is closed. */
static void refuse(struct gp_ctl_conn *conn, enum gp_ctl_reason reason, const char *why)
{
	gp_ctl_error(&conn->out, reason, "%s", why);
	if (gp_json_finish(&conn->out, &conn->answer, &conn->answer_length) != 0)
		conn->answer_length = 0;
	conn->sent = 0;
	conn->ends = true;
}

int gp_ctl_conn_open(struct gp_ctl_conn *conn, int fd, int64_t now_ns)
{
	int error;

	conn->ends = false;
	conn->active_ns = now_ns;
	conn->answer_length = conn->sent = 0;
	conn->received = 0;
	error = gp_ctl_fd_adopt(&conn->fd, fd);
	if (!error && !gp_ctl_is_peer_trusted(conn->fd.fd))
		refuse(conn, GP_CTL_PERMISSION, "this process belongs to another user");
	return error;
}

/* Takes over the descriptor that the handler attached. The answer would be of no use without it. */
static void take_attached(struct gp_ctl_conn *conn)
{
	int fd = gp_ctl_take_attached();

	if (fd >= 0 && gp_ctl_fd_adopt(&conn->attached, fd))
		refuse(conn, GP_CTL_FAILED, "this process has no file descriptor left");
}

static bool answer_line(struct gp_ctl_conn *conn, const gp_ctl_handler_fn *handlers)
{
	char *end = memchr(conn->in, '\n', conn->received);
	size_t length;

	if (!end)
		return false;
	length = (size_t)(end - conn->in);
	conn->sent = 0;
	gp_ctl_request(handlers, conn->in, length, &conn->out, &conn->answer, &conn->answer_length);
	conn->ends = conn->answer_length == 0;
	take_attached(conn);
	conn->received -= length + 1;
	memmove(conn->in, end + 1, conn->received);
	return true;
}

/* Returns false if there is nothing to read now. If the client will send no more, it also sets conn->ends. */
static bool read_some(struct gp_ctl_conn *conn, int64_t now_ns)
{
	ssize_t n = recv(conn->fd.fd, conn->in + conn->received, GP_CTL_REQUEST_MAX - conn->received, MSG_DONTWAIT);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return false;
	if (n > 0) {
		conn->received += (size_t)n;
		conn->active_ns = now_ns;
		return true;
	}
	/* An incomplete line is not carried out: "reclaim 1" may have been the beginning of "reclaim 12". */
	if (n == 0 && conn->received)
		refuse(conn, GP_CTL_USAGE, "the request does not end in a newline");
	conn->ends = true;
	return false;
}

/* Answers a request that is in the buffer, or else reads. Returns false if nothing more can be done now. */
static bool serve(struct gp_ctl_conn *conn, const gp_ctl_handler_fn *handlers, int64_t now_ns)
{
	if (answer_line(conn, handlers))
		return true;
	if (conn->received == GP_CTL_REQUEST_MAX) {
		refuse(conn, GP_CTL_USAGE, "the request is too long");
		return true;
	}
	return read_some(conn, now_ns);
}

void gp_ctl_conn_step(struct gp_ctl_conn *conn, const gp_ctl_handler_fn *handlers, int64_t now_ns)
{
	bool more = true;

	for (int i = 0; more && i < 2 * REQUESTS_A_STEP; i++) {
		if (!gp_ctl_fd_is_ours(&conn->fd) || !write_answer(conn, now_ns)) {
			gp_ctl_conn_close(conn);
			return;
		}
		if (is_writing(conn))
			return;
		if (conn->ends) {
			gp_ctl_conn_close(conn);
			return;
		}
		more = serve(conn, handlers, now_ns);
	}
	if (!more && conn->ends && !is_writing(conn))
		gp_ctl_conn_close(conn);
}
