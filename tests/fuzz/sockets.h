/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Simulated processes with control sockets. They run in the thread of the code under test: whenever
 * that waits in poll(), each of them does the next step of its script. Time is simulated.
 */

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

enum { SOCKETS_MAX = 3, SCRIPT_MAX = 32 << 10 };

/* Replace poll() and clock_gettime() in the code under test that waits for an answer. */
int fuzz_poll(struct pollfd *fds, nfds_t n, int timeout_ms);
int fuzz_clock_gettime(clockid_t clock, struct timespec *ret_time);

/* Makes n sockets. The first call makes their directory. */
void sockets_open(unsigned n);

/*
 * These functions extend the script of a socket. Each write sends the bytes up to the next cut. A
 * hang-up ends the connection, and the following bytes are for the next connection. At the end of
 * the script the connection stays open and silent.
 */
bool sockets_add_byte(unsigned nth, uint8_t byte); /* returns false if the script is full */
void sockets_add_cut(unsigned nth);
void sockets_add_hang_up(unsigned nth);

/* Sends n file descriptors with the next byte. Works as a cut, too. */
void sockets_add_fds(unsigned nth, unsigned n);

/* Returns the total length of all scripts. */
size_t sockets_bytes(void);

/* Returns the start time in the name of a socket. The process id in the name is this process's. */
uint64_t sockets_start_ticks(unsigned nth);

/* Returns the first line without its end if there is one socket without cuts that sends a whole line, or NULL. */
const char *sockets_line(size_t *ret_length);

/* Ends all connections. */
void sockets_close(void);
