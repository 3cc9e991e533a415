/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* The lines of --doctor: each says that something is good, or what to do. */

#include <stdbool.h>

#include "run_say.h"

/* The lines so far. With -q good lines are counted, but not printed. */
struct doctor {
	unsigned n_good, n_todo;
	const char *subject; /* of messages that are being listened to */
	unsigned n_heard;    /* such messages */
	struct run_listener listener;
};

void doctor_good(struct doctor *doctor, const char *subject, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* next: what to do, or NULL if the text says it. */
void doctor_todo(struct doctor *doctor, const char *subject, const char *next, const char *format, ...)
	__attribute__((format(printf, 4, 5)));

/* From here on, errors and warnings (run_say.h) become lines of the subject. */
void doctor_listen(struct doctor *doctor, const char *subject);

/* Ends that. Returns true if there was no message. */
bool doctor_heard_nothing(struct doctor *doctor);
