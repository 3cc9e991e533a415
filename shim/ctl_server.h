/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * The control socket of this process: one thread that waits for gpupool-stat, or anybody's socat,
 * and has requests answered by the handlers it was given. It makes no CUDA call, takes no lock of
 * the allocator and touches no file that is not its own. See ctl_server.c for its life.
 */

#include "ctl_request.h"

struct gp_ctl_options {
	struct gp_ctl_places places; /* the strings are not kept */
	const gp_ctl_handler_fn
		*handlers; /* GP_CTL_N_COMMANDS of them, NULL: not available; kept */
	int idle_ms;       /* a silent connection is closed after it; 0: a minute */
	void (*begin)(void); /* what the thread does first; NULL: nothing */
};

/*
 * Makes the socket and starts the thread. Once per process: every later call returns -EALREADY,
 * whatever became of the first. Safe from any thread; keeps errno. 0 or -errno; without a socket
 * everything else works on.
 */
int gp_ctl_start(const struct gp_ctl_options *options);

/* The socket's file name, or "@" and its name if it has no file, for a log line; "" if there is none. */
const char *gp_ctl_path(void);

/* For a log line: the directories that would have been taken before that one, and why each was not; "" if none. */
const char *gp_ctl_problems(void);

/*
 * For the child handler of pthread_atfork: the child has no server thread, lets go of the parent's
 * socket and may start its own.
 */
void gp_ctl_after_fork_child(void);
