/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * GPUPOOL_RECORD: records what the program allocates and frees, and what the driver answers, for gpupool-stat replay.
 *
 * While recording is off, it costs the check of a flag. While it is on, threads keep their caches, but the hooks of the
 * runtime's functions serve no calls. A thread may record while it holds locks, except an ALLOC or FREE record, which
 * may also log.
 */

#include "pool/pool.h"
#include "common/record_format.h"

extern _Atomic bool gp_record_flag;

static inline bool gp_record_is_on(void)
{
	return gp_unlikely(atomic_load_explicit(&gp_record_flag, memory_order_relaxed));
}

/*
 * Starts to record, once the settings have been read. NULL or "": nothing is recorded. has_stacks: the recording has
 * the stacks that are taken (record_stacks.h).
 */
void gp_record_init(const char *path_template, bool has_stacks);

bool gp_record_has_stacks(void);

/* Creates the file, and logs an error if that fails. Called at the first allocation. */
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

/* Adds a long record (common/record_format.h) to a recording with stacks. The caller holds no lock of the pool. */
void gp_record_add_long(enum gp_record_kind kind, const uint8_t *body, size_t length);

/* Adds a record about the pool; NULL: about no pool. */
void gp_record_note(const struct gp_pool *pool, enum gp_record_kind kind, const uint64_t *values);

/*
 * gp_record(pool, FREE, address, mode, is_pinned): adds a record with up to six fields (record.def); the rest are 0.
 * The fields are computed only while the process is recorded.
 */
#define gp_record(pool, kind, ...)                                                                \
	do {                                                                                      \
		if (gp_record_is_on())                                                            \
			gp_record_note(pool, GP_RECORD_##kind, (const uint64_t[6]){__VA_ARGS__}); \
	} while (0)
