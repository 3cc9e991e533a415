/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#pragma once

/*
 * Processes with control sockets, for tests of how gpupool-stat asks many of them. The test's own process
 * listens at the sockets of processes that have ended, because the kernel reports the caller of listen() as
 * the owner of a socket. Time is simulated: it passes where the survey waits.
 */

#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

#include "tools/ask/stat_survey.h"

enum { SURVEY_TIMEOUT_MS = 2000 };

struct survey_peer {
	int listener, client; /* one client at a time */
	const char *answer;   /* NULL: never answers */
	const char *rest;     /* what is still to be sent; NULL: the client has not asked yet */
	uid_t asked_by;       /* effective user of the client */
};

extern struct survey_peer survey_peers[];
extern int survey_n_peers, survey_n_asked;
extern char survey_root[64]; /* the directory of sockets */
extern int64_t survey_now_ns;
extern const char survey_status[]; /* a good answer */

/* The code under test calls these in place of poll() and clock_gettime(). */
int fuzz_poll(struct pollfd *fds, nfds_t n, int timeout_ms);
int fuzz_clock_gettime(clockid_t clock, struct timespec *ret_time);

void survey_setup(void);
void survey_teardown(void);

/*
 * Adds the socket of a process to a directory. in_one_process: all such sockets belong to one process, whatever their
 * names say.
 */
void survey_add_peer(const char *dir, uid_t uid, const char *answer, bool in_one_process);

/* Adds a child that listens and is stopped (SIGSTOP). The caller kills it. */
pid_t survey_add_stopped_peer(const char *dir);

struct stat_question survey_question(int timeout_ms);
size_t survey_count_answers(const struct stat_survey *survey);
