/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * One client's connection. The server reads a line, writes the whole answer, and only then reads the next line. So
 * whatever a client does, a connection holds one request and one answer, both of limited size, and the server never
 * waits for a client.
 */

#include "ctl_fd.h"
#include "ctl_request.h"

struct gp_ctl_conn {
	struct gp_ctl_fd fd; /* GP_CTL_NO_FD: the connection slot is free */
	bool ends;           /* close once the answer is written */
	int64_t active_ns;   /* when the client last did something */
	struct gp_json out;
	struct gp_ctl_fd attached; /* passed with the first byte of the answer, and closed then */
	const char *answer;        /* points into out */
	size_t answer_length, sent;
	size_t received;
	char in[GP_CTL_REQUEST_MAX + 1];
};

/* Initialises a free connection slot. To be called once, before the other functions. */
void gp_ctl_conn_init(struct gp_ctl_conn *conn);

/*
 * Takes over an accepted, non-blocking socket. Returns 0 or -errno. Root and the process's own user may send requests.
 * Any other user is answered with an error.
 */
int gp_ctl_conn_open(struct gp_ctl_conn *conn, int fd, int64_t now_ns);

/* Closes the connection and frees its slot. An answer that is not written yet is lost. */
void gp_ctl_conn_close(struct gp_ctl_conn *conn);

/* Closes the descriptors only. For a forked child, which has copies of them, and must not free memory. */
void gp_ctl_conn_close_copies(struct gp_ctl_conn *conn);

/* Returns the events to poll for. */
short gp_ctl_conn_events(const struct gp_ctl_conn *conn);

/* Reads, answers and writes as much as is possible without waiting. Closes the connection once it is over. */
void gp_ctl_conn_step(struct gp_ctl_conn *conn, const gp_ctl_handler_fn *handlers, int64_t now_ns);
