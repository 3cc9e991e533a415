/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* A control server in a private directory, with the test's handlers, and blocking clients for it. */

#include <stdbool.h>
#include <stddef.h>

#include "common/ctl_proto.h"

extern char fixture_root[64];

/* Makes the directory; fixture_start() starts the server. */
void fixture_setup(void);
void fixture_teardown(void);

/* Starts the server; returns what gp_ctl_start() returned. idle_ms 0: the default. */
int fixture_start(int idle_ms);

/*
 * Like fixture_start, but in directories that the test chooses. With a directory that does not exist the socket has no
 * file.
 */
int fixture_start_at(const struct gp_ctl_dirs *dirs, int idle_ms);
int fixture_start_without_file(void);

/*
 * Connect a client. fixture_try_connect returns -1 if the connection is refused; any other error fails the
 * test.
 */
int fixture_try_connect(const char *path);
int fixture_connect(void);

void fixture_send(int fd, const char *bytes, size_t length);

/* Returns false if the server has closed the connection. */
bool fixture_try_send(int fd, const char *text);

/*
 * Returns one line without its end, or "" if the server closed before a whole line came. Valid until the next
 * call.
 */
const char *fixture_read_line(int fd);
const char *fixture_ask(int fd, const char *request);

/* Waits for data or the end; returns true if the server has closed the connection. */
bool fixture_is_closed(int fd);

bool fixture_is_socket(int fd);

/* Returns the number of sockets that this process has open. */
int fixture_count_sockets(void);
void fixture_wait_for_sockets(int n);

/* The answer to "version"; and a check, with a new client, that the server still gives it. */
extern const char fixture_version[];
void fixture_assert_serves(void);

/*
 * Connects a client that has read the first bytes of an answer of several megabytes. FIXTURE_UNREAD_BYTES bytes
 * remain.
 */
enum { FIXTURE_UNREAD_BYTES = 3999900 + 40 };
int fixture_ask_without_reading(const char *path);
