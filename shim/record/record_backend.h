/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* The recording layer between a pool and its backend (record_backend.c). */

#include "record.h"

enum { GP_RECORD_NO_POOL = UINT32_MAX };

/* Ends the recording with an error, a -errno. */
void gp_record_fail(int error);

/* Adds a record of an answer of the backend. */
void gp_record_answer(uint32_t pool, enum gp_record_kind kind, const uint64_t *values);

/* Called in a forked child: resets the lock, which a thread of the parent may have held. */
void gp_record_pools_after_fork_child(void);
