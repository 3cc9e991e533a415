/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * From one line of a client to one answer: finds the command, counts its words, calls its handler.
 */

#include "ctl_proto.h"
#include "json.h"

enum gp_ctl_reason {
	GP_CTL_USAGE,      /* the words are wrong */
	GP_CTL_PERMISSION, /* the client may not */
	GP_CTL_FAILED,     /* tried, and it did not work */
	GP_CTL_UNKNOWN,    /* no such command, or no such thing in this process */
};

/*
 * Answers a command: argv[0] is its name, argc counts it too and agrees with ctl.def. Writes one
 * object, "schema" first, into an empty document. 0, or the result of gp_ctl_error(). Runs in the
 * server's thread, one at a time.
 */
typedef int (*gp_ctl_handler_fn)(int argc, char **argv, struct gp_json *out);

/*
 * Replaces whatever is in out by an error object. Returns -EINVAL, -EPERM, -EIO or -ENOENT, for the
 * reasons in the order above, so that a handler can return it.
 */
int gp_ctl_error(struct gp_json *out, enum gp_ctl_reason reason, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* Begins the object of an answer with its schema: "gpupool.NAME/1". */
void gp_ctl_answer_begin(struct gp_json *out, enum gp_ctl_command command);

/*
 * Answers a line (without its end, cut up in the process). Handlers are indexed by command; one
 * that is missing makes its command unknown. The answer is complete in any case, an error object if
 * nothing else.
 */
void gp_ctl_request(const gp_ctl_handler_fn handlers[GP_CTL_N_COMMANDS], char *line, size_t length,
	struct gp_json *out, const char **answer, size_t *answer_length);
