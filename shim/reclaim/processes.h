/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Asks other processes, those of this user or of all users, for memory. All are asked at the same time, and the wait
 * for their answers is bounded. A process that does not answer is not asked again for a while (unresponsive backoff).
 * Answers are not trusted: they are only counted.
 */

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum { GP_PROCESSES_SHOWN = 8, GP_PROCESS_REQUEST_MAX = 128 };

struct gp_process {
	pid_t pid;
	uid_t uid;      /* owner of the process */
	int error;      /* 0; -EPERM: it refused; another -errno: no valid answer */
	uint64_t bytes; /* given back, by its own account */
};

struct gp_processes {
	unsigned n; /* processes asked */
	uint64_t bytes;
	struct gp_process shown[GP_PROCESSES_SHOWN]; /* most bytes first */
};

/*
 * Sends the request, which is one line with its newline, and collects answers of the schema "gpupool.yield/1". are_all:
 * also asks processes of other users, which only root can do. Keeps errno.
 */
void gp_processes_ask(const char *request, bool are_all, struct gp_processes *ret);

/* Parses an answer. Returns 0 and the bytes; -EPERM if the process refuses; or -EPROTO if the answer is invalid. */
int gp_processes_parse(const char *line, uint64_t *ret_bytes);
