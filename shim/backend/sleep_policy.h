/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * GPUPOOL_SLEEP: when the process goes to sleep without being told to by hand. It does so once it has been idle for the
 * time that the user has set, or when another process of the user is short of memory and asks for it (rest.h).
 *
 * The process is idle while no thread submits work. The watcher, which is the server's thread, looks at the submission
 * epoch now and then, as a thread does that records a fence. So a submission pays for this only what it pays for a
 * fence, once for each look. The sleep itself runs in a thread that ends with it: the server answers meanwhile, and a
 * process that asks knows that this one is on its way. As each sleep, it ends at once if a thread of the program comes
 * to the gate.
 */

#include "shim/base/json.h"
#include "sleep.h"

/* To be called before there is a context. */
void gp_sleep_policy_start(void);

/* True if GPUPOOL_SLEEP is on: then a thread has to call gp_sleep_watch, which returns the milliseconds until then. */
bool gp_sleep_is_watched(void);
int gp_sleep_watch(void);

/* Starts a thread that watches, in a process without a server. */
void gp_sleep_watch_alone(void);

/* Answers the request "rest" of another process. */
int gp_rest_answer(int argc, char **argv, struct gp_json *out);

struct gp_sleep_policy {
	uint64_t idle_ns;           /* since the last work that the watcher knows of; 0 without GPUPOOL_SLEEP */
	uint64_t n_idle, n_asked;   /* sleeps that began because the process was idle, or asked by another process */
	char why[GP_QUIET_WHY_MAX]; /* why the last of these failed; empty: it has not */
};

struct gp_sleep_policy gp_sleep_policy_status(void);
