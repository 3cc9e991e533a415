/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * A control server with handlers of the test's own in a directory of its own, and blocking clients
 * for it.
 */

#include <stdbool.h>
#include <stddef.h>

#include "shim/ctl_proto.h"

extern char fixture_root[64];

/* Makes the directory; the server comes with fixture_start(). */
void fixture_setup(void);
void fixture_teardown(void);

/* Starts the server; what gp_ctl_start() returned. idle_ms 0: the default. */
int fixture_start(int idle_ms);

/* The same with directories of the test's choice, and with one that is not there. */
int fixture_start_at(const struct gp_ctl_places *places, int idle_ms);
int fixture_start_without_file(void);

/* A connected client; only a refused connection returns, as -1. */
int fixture_try_connect(const char *path);
int fixture_connect(void);

void fixture_send(int fd, const char *bytes, size_t length);

/* False if the server has gone. */
bool fixture_try_send(int fd, const char *text);

/* One line, without its end; "" if the server closed before one came. Freed by the next call. */
const char *fixture_read_line(int fd);
const char *fixture_ask(int fd, const char *request);

/* Whether the server has closed, waiting for it. */
bool fixture_is_closed(int fd);

bool fixture_is_socket(int fd);

/* How many sockets this process has open. */
int fixture_count_sockets(void);
void fixture_wait_for_sockets(int n);

/* The answer to "version", and a client of its own that gets it: so the server is alive and well. */
extern const char fixture_version[];
void fixture_assert_serves(void);

/* A client that has read the first bytes of an answer of some megabytes; so many are left. */
enum { FIXTURE_MUCH_LEFT = 3999900 + 40 };
int fixture_ask_for_much(const char *path);
