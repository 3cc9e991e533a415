/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* Turns one line of a client into one answer: finds the command, counts its words, calls its handler. */

#include "common/ctl_proto.h"
#include "shim/base/json.h"

enum gp_ctl_reason {
	GP_CTL_USAGE,      /* the words are wrong */
	GP_CTL_PERMISSION, /* the client may not send requests */
	GP_CTL_FAILED,     /* the command was tried and failed */
	GP_CTL_UNKNOWN,    /* there is no such command, or no such object in this process */
};

/*
 * Answers a command. argv[0] is its name, and argc includes it and is within the limits of ctl.def. Writes one object,
 * with "schema" first, into an empty document. Returns 0, or the result of gp_ctl_error(). All handlers run in the
 * server's thread, one after another.
 */
typedef int (*gp_ctl_handler_fn)(int argc, char **argv, struct gp_json *out);

/*
 * Replaces the contents of out by an error object. Returns -EINVAL, -EPERM, -EIO or -ENOENT, for the reasons in the
 * order above, so that a handler can return it.
 */
int gp_ctl_error(struct gp_json *out, enum gp_ctl_reason reason, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/*
 * Passes a file descriptor to the client with the answer. Takes it over. To be called by a handler, which must not
 * return an error afterwards; otherwise the descriptor is closed.
 */
void gp_ctl_attach(int fd);

/* Returns the descriptor that the last gp_ctl_request attached, which is then the caller's, or -1. */
int gp_ctl_take_attached(void);

/* Begins the object of an answer with its schema: "gpupool.NAME/1". */
void gp_ctl_answer_begin(struct gp_json *out, enum gp_ctl_command command);

/*
 * Answers a line, which comes without its newline and is cut into words in place. A command without a handler is
 * answered as unknown. *answer is a complete JSON object, which may be an error. If host memory has run out, there is
 * no answer, and *answer_length is 0.
 */
void gp_ctl_request(const gp_ctl_handler_fn handlers[GP_CTL_N_COMMANDS], char *line, size_t length, struct gp_json *out,
	const char **answer, size_t *answer_length);
