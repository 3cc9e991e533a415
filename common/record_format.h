/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * A recording is the title line, followed by records. The file may end in the middle of a record. A record consists of:
 *
 *	tag	number of the record's kind (record.def) | number of fields << 5; if that is 7, a varint with the number
 *		of fields follows
 *	time	varint: nanoseconds since the previous record
 *	fields	varints
 *
 * A varint has seven bits in each byte, the lowest first, and the eighth bit set in all but the last byte. Signed
 * values are folded (0, -1, 1, -2, ... become 0, 1, 2, 3, ...). Trailing fields of 0 are left out.
 *
 * The title has the version of the format: 2 with call stacks, 3 without. Version 1, without call stacks and without
 * long records, is no longer written. Later, a record whose number is GP_RECORD_LONG or more is a long record. It
 * consists of:
 *
 *	tag	GP_RECORD_LONG
 *	number	varint: number of the record's kind
 *	time	varint, as above
 *	length	varint: bytes of the body
 *	body	fields as above and, for some letters of record.def, texts and frames
 */

#include <stddef.h>
#include <stdint.h>

/* Titles of equal length. */
#define GP_RECORD_TITLE        "gpupool-recording 1\n"
#define GP_RECORD_TITLE_STACKS "gpupool-recording 2\n"
#define GP_RECORD_TITLE_PLAIN  "gpupool-recording 3\n"

enum {
	GP_RECORD_COUNT_SHIFT = 5,
	GP_RECORD_COUNT_MORE = 7, /* a varint with the number of fields follows */
	GP_RECORD_KIND_MASK = 31,
	GP_RECORD_LONG = 31,
	GP_RECORD_FIELDS_MAX = 15,
	GP_RECORD_VARINT_MAX = 10,    /* bytes */
	GP_RECORD_BODY_MAX = 2048,    /* bytes */
	GP_RECORD_COMMAND_MAX = 1536, /* bytes of a command line */
};

/* Bounds of what a recording with stacks defines: the highest numbers, and the frames of a stack. */
enum {
	GP_RECORD_OBJECTS_MAX = 4096,
	GP_RECORD_PLACES_MAX = 1 << 16,
	GP_RECORD_STACKS_MAX = 1 << 15,
	GP_RECORD_STACK_FRAMES_MAX = 64,
};

/* Numbers in a frame of a STACK that stand for something other than an OBJECT. */
enum {
	GP_RECORD_FRAME_PLACE = -2, /* a line of an interpreted program */
	GP_RECORD_FRAME_PLAIN = -1, /* an address in no file */
};

/* Flags of a POOL. */
enum {
	GP_RECORD_POOL_COMPLETION = 1 << 0,   /* reuse needs completion from the start */
	GP_RECORD_POOL_BEHIND = 1 << 1,       /* memory can be given back without a wait on the host */
	GP_RECORD_POOL_WAITS = 1 << 2,        /* recording a fence makes the host wait */
	GP_RECORD_POOL_SEES = 1 << 3,         /* frees need no fence while nothing is submitted (pool/submission.h) */
	GP_RECORD_POOL_SLOW_RELEASE = 1 << 4, /* the first release behind a fence takes long */
};

/* Flags of an ALLOC and a FREE. */
enum {
	GP_RECORD_CALL_UNCACHED = 1 << 0,  /* in a no-cache scope */
	GP_RECORD_CALL_BY_THREAD = 1 << 1, /* the call first tried the thread's cache for the pool that USE named */
	GP_RECORD_CALL_CALM = 1 << 2,      /* of a FREE: nothing was submitted since the last FENCE or FREE */
};

enum gp_record_kind {
#define RECORD(number, name, fields, help) GP_RECORD_##name = (number),
#include "record.def"
};

/* Writes a varint of at most GP_RECORD_VARINT_MAX bytes. Returns their number. */
static inline size_t gp_record_put_varint(uint8_t *at, uint64_t value)
{
	size_t n = 0;

	for (; value > 127; value >>= 7)
		at[n++] = (uint8_t)(value | 128);
	at[n++] = (uint8_t)value;
	return n;
}

static inline uint64_t gp_record_fold(uint64_t value)
{
	return value << 1 ^ (value >> 63 ? UINT64_MAX : 0);
}

static inline uint64_t gp_record_unfold(uint64_t folded)
{
	return folded >> 1 ^ (folded & 1 ? UINT64_MAX : 0);
}
