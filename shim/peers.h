/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * What other processes, this user's or all, answer when they are asked for memory: all at once, in bounded time. Who
 * does not answer is not asked again for a while. What they say is not to be trusted, only counted.
 */

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum { GP_PEERS_SHOWN = 8, GP_PEER_REQUEST_MAX = 128 };

struct gp_peer {
	pid_t pid;
	uid_t uid;	/* whose it is */
	int error;	/* 0, or why there was no answer */
	uint64_t bytes; /* given back, by its own account */
};

struct gp_peers {
	unsigned n, n_silent; /* asked; without an answer */
	uint64_t bytes;
	struct gp_peer shown[GP_PEERS_SHOWN]; /* those that gave most */
};

/*
 * A request of one line, with its end, whose answers are of schema "gpupool.yield/1". are_all: of other users, too,
 * which is for root alone. Keeps errno.
 */
void gp_peers_ask(const char *request, bool are_all, struct gp_peers *ret);

/* A line of an answer: 0 and the bytes, -EPERM if the process does not want to, or -EPROTO. */
int gp_peers_parse(const char *line, uint64_t *ret_bytes);
