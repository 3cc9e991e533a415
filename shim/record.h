/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * GPUPOOL_RECORD: writes down what the program allocates and frees, and what the driver answers, for
 * gpupool-stat replay.
 *
 * Off it costs a look at a flag. On, threads keep what they have at hand, but the runtime layer serves nobody. Any
 * thread may record, whatever locks it holds; with any the rows ALLOC and FREE are not for it, since they may log.
 */

#include "../pool/pool.h"
#include "record_format.h"

extern _Atomic bool gp_record_flag;

static inline bool gp_record_is_on(void)
{
	return gp_unlikely(atomic_load_explicit(&gp_record_flag, memory_order_relaxed));
}

/* The settings have been read. NULL or "": nothing is recorded. */
void gp_record_init(const char *path_template);

/* The first allocation: makes the file, and says so if it cannot be made. */
void gp_record_start(void);

/* The child has a copy of what the parent has not written yet: that is the parent's. */
void gp_record_after_fork_child(bool is_over);

/*
 * From now on the answers that this pool gets from its backend are recorded. Called before gp_pool_new; pinned: 0 for
 * device memory, else 1 + its kind.
 */
void gp_record_pool(struct gp_pool_options *options, int device, unsigned pinned);

/* gp_pool_new has failed. */
void gp_record_no_pool(struct gp_pool_options *options);

/* Whether that is the epoch (work.h) of the last time that this was asked. */
bool gp_record_is_calm(uint64_t epoch);

/* A record about that pool; NULL: about none. */
void gp_record_note(const struct gp_pool *pool, enum gp_record_kind kind, const uint64_t *values);

/* gp_record(pool, FREE, address, mode, is_pinned): a row of record.def and its fields, up to four; the rest are 0. */
#define gp_record(pool, kind, ...)                                                                                     \
	do {                                                                                                           \
		if (gp_record_is_on())                                                                                 \
			gp_record_note(pool, GP_RECORD_##kind, (const uint64_t[4]){__VA_ARGS__});                      \
	} while (0)
