/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* How gpupool-run speaks to its user: what, why, and what to do next; on stderr. */

#include <stdbool.h>

#include "shim/size.h"

/* Exit codes. The program's own take their place once it has started. */
enum run_status {
	RUN_OK = 0,
	RUN_USAGE = 2,           /* something typed cannot be right */
	RUN_FAILED = 125,        /* gpupool-run itself could not do its part */
	RUN_NOT_STARTABLE = 126, /* the program is there, but cannot be started */
	RUN_NOT_FOUND = 127,
};

extern bool run_is_quiet;

/* Both end with the line "Next: ...", unless next is NULL. Control characters are replaced. */
void run_error(const char *next, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Not said at all with -q. */
void run_warn(const char *next, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The value of name ("--limit" or "GPUPOOL_LIMIT") with its first wrong character marked. */
void run_mark(const char *name, const char *value, const struct gp_text_error *error);
