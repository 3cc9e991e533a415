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

#include "broker_ask.h"

enum {
	GP_PROCESSES_SHOWN = 8,
	GP_PROCESS_REQUEST_MAX = 128,
	GP_PROCESSES_ASK_MS = 2000, /* ask timeout, for all processes together */
};

/* Tells whether an allocation that lacked memory has waited for other processes (neighbours.h). */
enum gp_processes_wait {
	GP_PROCESSES_NONE,       /* none holds memory of the device, or may be asked for it */
	GP_PROCESSES_TOO_LITTLE, /* not even all that they hold would have been enough */
	GP_PROCESSES_CAPTURE,    /* a stream captured */
	GP_PROCESSES_SPENT,      /* the process had waited too much within a minute */
	GP_PROCESSES_WAITED,
};

struct gp_process {
	pid_t pid;
	uid_t uid;              /* owner of the process */
	int error : 11;         /* 0; -EPERM: it refused; another -errno: no valid answer */
	unsigned may_sleep : 1; /* it has answered a request to sleep */
	unsigned idle_ds : 20;  /* tenths of a second since its last work, by its own account, or the highest number */
	uint32_t named;         /* gp_process_named of its socket's name */
	uint64_t bytes;         /* given back, by its own account */
	uint64_t held_bytes;    /* that it holds on the device, or that its sleep would give, likewise; 0: unknown */
};

enum { GP_PROCESS_IDLE_MAX_DS = (1 << 20) - 1 };

/* Tells processes apart by the names of their sockets. */
static inline uint32_t gp_process_named(pid_t pid, uint64_t start_ticks)
{
	return (uint32_t)start_ticks * UINT32_C(2654435761) ^ (uint32_t)pid;
}

struct gp_processes {
	unsigned n; /* processes asked */
	enum gp_processes_wait wait;
	uint64_t bytes, held_bytes;
	struct gp_process shown[GP_PROCESSES_SHOWN]; /* most bytes first */
	struct gp_broker_answer broker;              /* not part of the sums above */
};

/* True if the process of that socket's name is to be asked. */
typedef bool (*gp_processes_filter)(const void *arg, pid_t pid, uint64_t start_ticks);

/*
 * Sends the request, which is one line with its newline, and collects answers of the schemas "gpupool.yield/1",
 * "gpupool.wanted/1" and "gpupool.rest/1". are_all: also asks processes of other users, which only root can do. filter:
 * called with arg; NULL asks all. max_ms: the ask timeout, at most GP_PROCESSES_ASK_MS. A process is unresponsive if it
 * does not answer within GP_PROCESSES_ASK_MS. Keeps errno.
 */
void gp_processes_ask(const char *request, bool are_all, gp_processes_filter filter, const void *arg, int max_ms,
	struct gp_processes *ret);

/*
 * Parses an answer into bytes, held_bytes and idle_ds, 0 if the answer does not contain them. Returns 0; -EPERM if the
 * process refuses; or -EPROTO if the answer is invalid.
 */
int gp_processes_parse(const char *line, struct gp_process *ret);
