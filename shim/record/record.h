/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * GPUPOOL_RECORD: records what the program allocates and frees, and what the driver answers, for gpupool-stat replay.
 *
 * While it is off it costs the check of a flag. While it is on threads still have their caches, but the runtime layer
 * serves no calls. Any thread may record, whatever locks it holds, except ALLOC and FREE records: these may log, so no
 * lock may be held.
 */

#include "pool/pool.h"
#include "common/record_format.h"

extern _Atomic bool gp_record_flag;

static inline bool gp_record_is_on(void)
{
	return gp_unlikely(atomic_load_explicit(&gp_record_flag, memory_order_relaxed));
}

/* Starts to record, once the settings have been read. NULL or "": nothing is recorded. */
void gp_record_init(const char *path_template);

/* Called at the first allocation: creates the file, and logs it if that fails. */
void gp_record_start(void);

/*
 * True if nothing was submitted since the last call: the submission epoch is valid and still the same
 * (pool/submission.h).
 */
bool gp_record_is_calm(uint64_t epoch);

/* The pool's number in records that are about no pool. */
enum { GP_RECORD_NO_POOL = UINT32_MAX };

/* Adds a record of an answer of the backend. pool: the pool's number in the recording. */
void gp_record_answer(uint32_t pool, enum gp_record_kind kind, const uint64_t *values);

/* Ends the recording with an error, a -errno. */
void gp_record_fail(int error);

/* Adds a record about the pool; NULL: about no pool. */
void gp_record_note(const struct gp_pool *pool, enum gp_record_kind kind, const uint64_t *values);

/* gp_record(pool, FREE, address, mode, is_pinned): adds a record with up to four fields (record.def); others are 0. */
#define gp_record(pool, kind, ...)                                                                \
	do {                                                                                      \
		if (gp_record_is_on())                                                            \
			gp_record_note(pool, GP_RECORD_##kind, (const uint64_t[4]){__VA_ARGS__}); \
	} while (0)
