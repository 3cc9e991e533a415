/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * What happened in a program, one event after another, from a file: a recording (shim/record_format.h), or a text with
 * a line for each allocation and free (`a ADDRESS BYTES`, `f ADDRESS`, addresses in hexadecimal). Both may be
 * compressed by gzip. A text reads as a recording of one pool, whose results are all good and whose times are unknown.
 */

#include <stdbool.h>
#include <stddef.h>

#include "../shim/record_format.h"

enum { REPLAY_ERROR_MAX = 256 };

#define REPLAY_NO_POOL UINT32_MAX

struct replay_event {
	enum gp_record_kind kind;
	uint64_t position; /* of all events, from 1 */
	uint64_t ns;	   /* since the first */
	uint32_t thread, pool; /* REPLAY_NO_POOL: none yet */
	uint64_t values[GP_RECORD_FIELDS_MAX]; /* by the fields of record.def; addresses in full */
};

struct replay_file;

/* NULL, and why in error. */
struct replay_file *replay_open(const char *path, char error[static REPLAY_ERROR_MAX]);
void replay_close(struct replay_file *file);

/* Back to the first event. */
void replay_rewind(struct replay_file *file);

/* 1 and the next event; 0 at the end; -1 if the file makes no sense from here on, and why in error. */
int replay_next(struct replay_file *file, struct replay_event *event, char error[static REPLAY_ERROR_MAX]);

bool replay_is_text(const struct replay_file *file);

/* After the end: whether the file ends within an event. */
bool replay_is_cut(const struct replay_file *file);
