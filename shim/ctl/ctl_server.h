/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * The control socket of this process. One thread waits for gpupool-stat, or for another client such as socat, and calls
 * the handlers that answer the requests. The server itself makes no CUDA call, takes no lock of the allocator and uses
 * no file but its socket. ctl_server.c describes its life.
 */

#include "ctl_request.h"

enum {
	GP_CTL_FIRST_TICK_MS = 50,
	GP_CTL_TICK_MS = 1000,
};

struct gp_ctl_options {
	struct gp_ctl_dirs dirs;           /* the strings are not used after the start */
	const gp_ctl_handler_fn *handlers; /* one for each command, NULL: not available; must stay valid */
	int idle_ms;                       /* a silent connection is closed after this time; 0: a minute */
	void (*begin)(void);               /* called by the thread first; may be NULL */
	void (*tick)(void);                /* called by the thread at intervals (gp_ctl_tick_ms); may be NULL */
	int (*watch)(void); /* called by the thread; returns the milliseconds until the next call; may be NULL */
};

/*
 * Returns the time until the next tick. It doubles from tick to tick, up to GP_CTL_TICK_MS. It stays there in an idle
 * process too: a hit that woke the server would need more work on the path of each hit.
 */
int gp_ctl_tick_ms(int before_ms);

/*
 * Creates the socket and starts the thread, once in a process: every later call returns -EALREADY, even if the first
 * one failed. Any thread may call this. Keeps errno. Returns 0 or -errno. Without a socket everything else works.
 */
int gp_ctl_start(const struct gp_ctl_options *options);

/* Returns the path of the socket, or "@" and its name if it has no file, for a log line; "" if there is no socket. */
const char *gp_ctl_path(void);

/*
 * Returns, for a log line, the directories that were tried before the one in use, and why each is unusable; "" if there
 * are none.
 */
const char *gp_ctl_problems(void);

/*
 * Called in a forked child, which has no server thread. Closes its copies of the parent's sockets. The child may start
 * a server itself.
 */
void gp_ctl_after_fork_child(void);
