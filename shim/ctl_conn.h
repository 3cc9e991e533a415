/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * One client's connection: reads a line, has it answered, writes the answer, and only then reads
 * on. So whatever a client does, a connection holds one request and one answer, both bounded, and
 * the server never waits for it.
 */

#include "ctl_fd.h"
#include "ctl_request.h"

struct gp_ctl_conn {
	struct gp_ctl_fd fd; /* none: the place is free */
	bool ends;           /* to be closed once the answer is written */
	int64_t active_ns;   /* when the client last did something */
	struct gp_json out;
	const char *answer; /* in out */
	size_t answer_length, sent;
	size_t received;
	char in[GP_CTL_REQUEST_MAX + 1];
};

/* A free place; once, before anything else. */
void gp_ctl_conn_init(struct gp_ctl_conn *conn);

/*
 * Takes an accepted, non-blocking socket over. 0 or -errno. The program's own user and root may
 * ask, anybody else who came this far gets a refusal.
 */
int gp_ctl_conn_open(struct gp_ctl_conn *conn, int fd, int64_t now_ns);

/* Frees the place, answered or not. */
void gp_ctl_conn_close(struct gp_ctl_conn *conn);

/* What to poll for. */
short gp_ctl_conn_events(const struct gp_ctl_conn *conn);

/* Does what can be done without waiting; closes the connection when it is over. */
void gp_ctl_conn_step(struct gp_ctl_conn *conn, const gp_ctl_handler_fn *handlers, int64_t now_ns);
