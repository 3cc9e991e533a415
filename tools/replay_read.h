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

/*
 * Bounds of a recording, far above what a process has. A record of a few bytes can cost the replay 100 KiB, so a file
 * with more is refused as damaged.
 */
#define REPLAY_POOLS_MAX   4096
#define REPLAY_CACHES_MAX  8192	   /* thread caches at a time */
#define REPLAY_ANSWERS_MAX 1048576 /* of the driver, from one call of the program to the next */
#define REPLAY_BLOCKS_MAX  8388608 /* at a time */

/* Bytes of a device: several times those of the largest one. Managed memory has the capacity UINT64_MAX instead. */
#define REPLAY_CAPACITY_MAX (UINT64_C(1) << 41)

/* As a part of a message. */
#define REPLAY_MORE_THAN(n)  REPLAY_MORE_THAN_(n)
#define REPLAY_MORE_THAN_(n) "more than " #n " "

#define REPLAY_NO_POOL UINT32_MAX

struct replay_event {
	enum gp_record_kind kind;
	uint64_t position; /* of all events, from 1 */
	uint64_t ns;	   /* since the first */
	uint32_t thread, pool; /* REPLAY_NO_POOL: none yet */
	uint64_t values[GP_RECORD_FIELDS_MAX]; /* by the fields of record.def; addresses in full */
};

struct replay_file;

/* A call of the program, and an answer that the driver gave meanwhile. */
static inline bool replay_is_call(enum gp_record_kind kind)
{
	return (kind >= GP_RECORD_ALLOC && kind <= GP_RECORD_UNPOOLED) ||
	       (kind >= GP_RECORD_LIMIT && kind <= GP_RECORD_CACHE);
}

static inline bool replay_is_answer(enum gp_record_kind kind)
{
	return kind >= GP_RECORD_FENCE && kind <= GP_RECORD_ATTEMPT;
}

/* The key of the cache that the event's thread has for its pool, or would have. */
static inline uint64_t replay_cache_key(const struct replay_event *event)
{
	return ((uint64_t)event->thread << 32 | event->pool) + 1;
}

/* NULL, and why in error. */
struct replay_file *replay_open(const char *path, char error[static REPLAY_ERROR_MAX]);
void replay_close(struct replay_file *file);

/* Back to the first event. */
void replay_rewind(struct replay_file *file);

/* 1 and the next event; 0 at the end; -1 if the file makes no sense from here on, and why in error. */
int replay_next(struct replay_file *file, struct replay_event *event, char error[static REPLAY_ERROR_MAX]);

/*
 * Refuses the event that was read last, for a reason that the caller found. Returns -1, and the message in error; from
 * now on replay_next() fails there, too.
 */
int replay_refuse(struct replay_file *file, const char *why, char error[static REPLAY_ERROR_MAX]);

/* From now on the file ends behind the event that was read last, within the next. */
void replay_end_here(struct replay_file *file);

bool replay_is_text(const struct replay_file *file);

/* After the end: whether the file ends within an event. */
bool replay_is_cut(const struct replay_file *file);
