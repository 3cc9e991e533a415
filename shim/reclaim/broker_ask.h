/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Asks the broker of the machine (common/broker.h) for memory of processes that this one cannot ask itself: those of
 * other users, and of containers with socket directories of their own. Without a broker this is one system call. A
 * broker that does not answer is not asked again for a minute. Its answer is only counted.
 */

#include <stdint.h>

enum gp_broker_state {
	GP_BROKER_NONE, /* there is no broker, or it is not asked */
	GP_BROKER_ANSWERED,
	GP_BROKER_REFUSED,
	GP_BROKER_IS_BUSY, /* or the process, or its user, has asked too much */
	GP_BROKER_SILENT,
	GP_BROKER_INVALID, /* its answer is invalid */
};

struct gp_broker_answer {
	enum gp_broker_state state;
	uint64_t bytes;      /* that processes have given back */
	uint64_t held_bytes; /* that all processes hold on the device, except this one; 0: unknown */
};

enum {
	GP_BROKER_ASK_MS = 1000
}; /* ask timeout: more than the broker takes for the turn and for the answers of processes */

/*
 * Connects to the broker in a folder, usually GP_BROKER_DIR. Returns a descriptor, or -1 with the answer. The caller
 * has disabled cancellation until the descriptor is closed. Keeps errno, as the next function does.
 */
int gp_broker_open(const char *dir, struct gp_broker_answer *ret);

/*
 * Sends the request, which is one line with its newline, receives the answer, and closes the connection. max_ms: the
 * ask timeout, at most GP_BROKER_ASK_MS; only a broker that is silent for that long is not asked again.
 */
void gp_broker_ask(int fd, const char *request, int max_ms, struct gp_broker_answer *ret);
