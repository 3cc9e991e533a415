/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* Prints the messages of gpupool-run on stderr: what happened, why, and what to do next. */

#include <stdbool.h>

#include "common/size.h"

/* Exit codes of gpupool-run. Once the program has started, the exit code is the program's. */
enum run_status {
	RUN_OK = 0,
	RUN_TODO = 1,            /* --doctor found something to be done */
	RUN_USAGE = 2,           /* a wrong option or value */
	RUN_FAILED = 125,        /* gpupool-run itself failed */
	RUN_NOT_STARTABLE = 126, /* the program exists, but cannot be started */
	RUN_NOT_FOUND = 127,
};

extern bool run_is_quiet;

/* Takes errors and warnings instead of stderr. next may be NULL. */
struct run_listener {
	void (*take)(void *arg, const char *text, const char *next);
	void *arg;
};

/* Sets the listener; NULL: messages go to stderr. */
void run_listen(const struct run_listener *listener);

/* Prints an error and, unless next is NULL, a line "Next: ...". Control characters are replaced, here and below. */
void run_error(const char *next, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Prints a warning like an error; with -q, prints nothing unless a listener takes it. */
void run_warn(const char *next, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Prints a line that the user asked for. */
void run_say(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Replaces the current line of a terminal. An empty text leaves the line empty. */
void run_progress(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Prints why the value of name ("--limit" or "GPUPOOL_LIMIT") is wrong, with its first wrong character marked. */
void run_mark(const char *name, const char *value, const struct gp_text_error *error);
