/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* Reads a file once, before it is replayed or converted: counts its contents, and finds out whether it is damaged. */

#include "pool/pool.h"
#include "tools/text/stat_say.h"
#include "replay_read.h"

/* The contents of a file, which do not depend on the pool type. */
struct replay_contents {
	uint64_t n_events, n_allocs, n_frees, n_refused; /* refused: allocations that failed */
	uint64_t n_exports;                              /* blocks that another process or device may hold */
	uint64_t n_foreign;                              /* frees of blocks that are not allocated in the file */
	uint64_t duration_ns;                            /* 0 for a trace */
	uint64_t lag_ns;          /* age of the oldest work of device memory that a query found incomplete; 0: none */
	uint64_t peak_live_bytes; /* of device memory, in multiples of GP_ALIGN; of all devices together */
	uint64_t peak_live_pinned_bytes;
	uint64_t pid, start_s; /* 0 where unknown */
	uint32_t n_threads, n_pools;
	enum gp_kind kind;                   /* of the first pool of device memory */
	bool is_text, is_cut, is_exit;       /* is_text: a trace; is_exit: the process ended in order */
	char command[GP_RECORD_COMMAND_MAX]; /* the arguments, as of replay_command_of() */
	size_t command_length;
	char damage[REPLAY_ERROR_MAX]; /* where and how a recording is damaged, or empty */
};

/*
 * Returns 0, or -1 with the reason in error. A recording that is damaged behind its first allocation is accepted: from
 * now on the file ends before the damage. A trace, which people write, must be valid as a whole.
 */
int replay_survey(struct replay_file *file, struct replay_contents *ret_contents, char error[static REPLAY_ERROR_MAX]);

/* Reports if a recording was read only up to its damage. Returns STAT_FAILED then, otherwise STAT_OK. */
enum stat_exit replay_survey_end(const char *name, const struct replay_contents *contents);
