/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Processes with control sockets, played in the thread of who asks them: whenever that waits, they
 * do the next thing of their script. Time is counted, not spent.
 */

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

enum { SOCKETS_MAX = 3, SCRIPT_MAX = 32 << 10 };

/* What is called in place of poll() and clock_gettime(), wherever somebody waits for an answer. */
int fuzz_poll(struct pollfd *fds, nfds_t n, int timeout_ms);
int fuzz_clock_gettime(clockid_t clock, struct timespec *ret_time);

/* Makes the sockets' directory, the first time, and so many sockets in it. */
void sockets_open(unsigned n);

/*
 * The script of a socket: bytes, sent up to the next cut with one write; a hang-up ends the
 * connection, and what follows is for the next one. At its end a connection stays open and says
 * nothing.
 */
bool sockets_say(unsigned nth, uint8_t byte); /* false: it is too long already */
void sockets_cut(unsigned nth);
void sockets_hang_up(unsigned nth);

/* How many bytes all of them say. */
size_t sockets_bytes(void);

/* The start time in a socket's name; the process is this one. */
uint64_t sockets_start_ticks(unsigned nth);

/* If there is one socket, and it says a whole line at once: that line without its end. Else NULL. */
const char *sockets_line(size_t *ret_length);

/* Ends all connections. */
void sockets_close(void);
