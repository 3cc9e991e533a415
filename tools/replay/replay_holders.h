/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * The memory that a recorded program held at one moment, by the stack that allocated it. The moment is the peak, when
 * the program held the most, the end of the recording, or a time.
 */

#include <jansson.h>

#include "replay_history.h"
#include "replay_survey.h"

enum replay_at { REPLAY_AT_PEAK, REPLAY_AT_END, REPLAY_AT_TIME };

/* The memory whose holders are asked for: the number of a device, HISTORY_PINNED, or all devices together. */
enum { REPLAY_ALL_DEVICES = HISTORY_MEMORIES_MAX };

/* Zeros mean the peak of device 0. */
struct replay_moment {
	enum replay_at at;
	uint64_t ns;     /* of REPLAY_AT_TIME, since the recording began */
	unsigned memory; /* as above */
};

/* Parses "peak", "end" or seconds into at and ns; NULL means the peak. Returns false if the text is none of them. */
bool replay_moment_parse(const char *text, struct replay_moment *moment);

struct replay_holder {
	uint32_t stack;               /* number in replay_stacks_of(file); 0: allocated without a stack */
	uint64_t blocks, bytes;       /* held; each block is rounded up to 512 bytes */
	uint64_t allocs, alloc_bytes; /* allocated since the recording began, up to the moment */
};

struct replay_holders {
	struct replay_holder *list; /* those that hold blocks; the most bytes first */
	size_t n;
	uint64_t blocks, bytes; /* of all together */
	uint64_t ns;            /* the moment */
};

/*
 * Finds the holders in a file that has passed replay_survey(). Returns 0, or -1 with the reason in error. The caller
 * frees the holders.
 */
int replay_holders_make(struct replay_holders *ret_holders, struct replay_file *file,
	const struct replay_contents *contents, const struct replay_moment *moment,
	char error[static REPLAY_ERROR_MAX]);
void replay_holders_free(struct replay_holders *holders);

/* Returns the frames of a stack as in an answer, whose objects and places are those of replay_holders_answer(). */
json_t *replay_stack_frames(const struct replay_stack *stack);

enum { REPLAY_SITES_MAX = 5000 };

/*
 * Returns the holders as an answer to "leaks", for what reads such answers (tools/answer/stat_sites.h and others). The
 * caller releases it. Beyond the REPLAY_SITES_MAX largest stacks, the rest together is the member "rest".
 */
json_t *replay_holders_answer(
	const struct replay_holders *holders, const struct replay_file *file, const struct replay_contents *contents);
