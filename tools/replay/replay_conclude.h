/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* The conclusion of replays: the pool type to use, the command line for it, and what it is expected to save. */

#include <jansson.h>

#include "replay_run.h"

/* A pool type, with a limit or without, and its result. */
struct replay_option {
	enum gp_kind kind;
	bool fits;             /* every allocation is served that was served in the recorded process */
	uint64_t limit_bytes;  /* of each device; GP_NO_LIMIT: none, or as recorded */
	uint64_t peak_bytes;   /* of device memory, taken from the driver */
	uint64_t driver_calls; /* for memory */
};

struct replay_conclusion {
	bool has_before; /* the recorded pool type, or the default for a trace, was replayed */
	bool has_after;  /* one of the options can be recommended */
	struct replay_option before, after;
};

struct replay_option replay_option_of(const struct replay_result *result);

/*
 * Compares n options, and recommends the one with the lowest peak. Does not recommend a pool type that lacks something
 * that the program needs, nor another one than before for less than 3 %.
 */
void replay_conclude(struct replay_conclusion *ret_conclusion, const struct replay_contents *contents,
	const struct replay_option *options, size_t n);

/* Prints the conclusion: a command line to paste, and a sentence. */
void replay_conclusion_show(const struct replay_contents *contents, const struct replay_conclusion *conclusion);

/* Returns the same as an object, or JSON's null if nothing can be recommended. */
json_t *replay_conclusion_json(const struct replay_contents *contents, const struct replay_conclusion *conclusion);
