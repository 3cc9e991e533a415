/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * The call stacks that a recording defines, and the files and lines of interpreted programs in them. Each has the
 * number that the recording gives it. The recording may be hostile, so the numbers, the frames and the names are
 * bounded, and a frame names only what has been defined.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/record_format.h"

enum { REPLAY_BUILD_ID_MAX = 64 };

/* Names of files and functions, all together. The library writes 4 MiB at most. */
#define REPLAY_NAMES_MAX (16 << 20) /* bytes */

struct replay_object {
	char *path;                                 /* NULL: not defined */
	char build_id[2 * REPLAY_BUILD_ID_MAX + 1]; /* in hexadecimal; "": none */
};

struct replay_place {
	char *function, *file; /* NULL: not defined */
	uint64_t line;         /* 0: unknown */
};

struct replay_frame {
	int64_t object; /* number of the object, or one of GP_RECORD_FRAME */
	uint64_t address;
};

struct replay_stack {
	struct replay_frame *frames; /* the innermost first; NULL: not defined */
	unsigned n_frames;
};

/* Lists by number. Entry 0 is unused, and n_... is the highest number. */
struct replay_stacks {
	struct replay_object *objects;
	struct replay_place *places;
	struct replay_stack *stacks;
	uint32_t n_objects, n_places, n_stacks;
	size_t n_name_bytes;
};

/* Adds what a long record defines; does nothing for other kinds. False if the record is invalid. */
bool replay_stacks_add(struct replay_stacks *stacks, enum gp_record_kind kind, const uint8_t *body, size_t length);
void replay_stacks_deinit(struct replay_stacks *stacks);

/*
 * Finds the arguments in the body of a COMMAND record: length bytes, at most GP_RECORD_COMMAND_MAX. The last byte is 0.
 * The length is 0 if the recording has only a part of them. Returns false if the record is invalid.
 */
bool replay_command_parse(const uint8_t *body, size_t length, const char **ret_words, size_t *ret_length);

/* Returns a stack by its number, or NULL if it is not defined. */
const struct replay_stack *replay_stack_find(const struct replay_stacks *stacks, uint64_t number);
