/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Reads the events of a program from a file, one after another. The file is a recording (common/record_format.h), or a
 * trace: a text with a line for each allocation and free (`a ADDRESS BYTES`, `f ADDRESS`, addresses in hexadecimal).
 * Both may be compressed by gzip. A trace reads like a recording of one pool in which every call succeeded and no time
 * is known.
 */

#include <stdbool.h>
#include <stddef.h>

#include "common/record_format.h"
#include "replay_stacks.h"

enum { REPLAY_ERROR_MAX = 256 };

/*
 * Bounds of a recording, far above the needs of a process. A record of a few bytes can cost the replay 100 KiB of
 * memory, so a file that exceeds them is refused as damaged.
 */
#define REPLAY_POOLS_MAX   4096
#define REPLAY_CACHES_MAX  8192    /* thread caches at a time */
#define REPLAY_ANSWERS_MAX 1048576 /* of the driver, from one call of the program to the next */
#define REPLAY_BLOCKS_MAX  8388608 /* live blocks at a time */

/* Memory of a device: several times that of the largest one. Managed memory has the capacity UINT64_MAX instead. */
#define REPLAY_CAPACITY_MAX (UINT64_C(1) << 41)

/* A part of a message, from a number that is a macro. */
#define REPLAY_MORE_THAN(n)  REPLAY_MORE_THAN_(n)
#define REPLAY_MORE_THAN_(n) "more than " #n " "

#define REPLAY_NO_POOL UINT32_MAX

struct replay_event {
	enum gp_record_kind kind;              /* may be one that record.def does not have */
	uint64_t position;                     /* number of the event in the file, from 1 */
	uint64_t ns;                           /* since the first */
	uint32_t thread, pool;                 /* pool: REPLAY_NO_POOL before the first USE */
	uint64_t values[GP_RECORD_FIELDS_MAX]; /* by the fields of record.def; addresses in full */
};

struct replay_file;

/* True for a call of the program, and true for an answer of the driver to the pools. */
static inline bool replay_is_call(enum gp_record_kind kind)
{
	return (kind >= GP_RECORD_ALLOC && kind <= GP_RECORD_UNPOOLED) ||
	       (kind >= GP_RECORD_LIMIT && kind <= GP_RECORD_CACHE);
}

static inline bool replay_is_answer(enum gp_record_kind kind)
{
	return kind >= GP_RECORD_FENCE && kind <= GP_RECORD_ATTEMPT;
}

/* Returns the key for a map of thread caches: the event's thread and pool. */
static inline uint64_t replay_cache_key(const struct replay_event *event)
{
	return ((uint64_t)event->thread << 32 | event->pool) + 1;
}

/* Returns NULL with the reason in error if the file cannot be read, or is neither a recording nor a trace. */
struct replay_file *replay_open(const char *path, char error[static REPLAY_ERROR_MAX]);
void replay_close(struct replay_file *file);

/* Goes back to the first event. */
void replay_rewind(struct replay_file *file);

/* Returns 1 and the next event, 0 at the end, or -1 with the reason in error if the file is invalid from here on. */
int replay_next(struct replay_file *file, struct replay_event *event, char error[static REPLAY_ERROR_MAX]);

/*
 * Refuses the event that was read last, for a reason of the caller. Returns -1 with the message in error. From now on
 * replay_next() fails at this event, too.
 */
int replay_refuse(struct replay_file *file, const char *why, char error[static REPLAY_ERROR_MAX]);

/* From now on the file ends behind the event that was read last, as if it had been cut off within the next. */
void replay_end_here(struct replay_file *file);

/* The same behind the event at that position. */
void replay_end_at(struct replay_file *file, uint64_t position);

bool replay_is_text(const struct replay_file *file);

/* True if the file is a recording with stacks. */
bool replay_has_stacks(const struct replay_file *file);

/*
 * Returns the command line that the file has given up to the event that was read last: ret_length bytes, of which each
 * argument ends with a byte of 0. Without one, or if its end is cut off, the length is 0.
 */
const char *replay_command_of(const struct replay_file *file, size_t *ret_length);

/* Returns the stacks that the file has defined up to the event that was read last. */
const struct replay_stacks *replay_stacks_of(const struct replay_file *file);

/* After the end: true if the file ends within an event. */
bool replay_is_cut(const struct replay_file *file);
