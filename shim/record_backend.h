/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* What stands between a pool that is recorded and its backend: record_backend.c. */

#include "record.h"

enum { GP_RECORD_NO_POOL = UINT32_MAX };

/* The recording ends: -errno. */
void gp_record_fail(int error);

/* A record of what the backend answered. */
void gp_record_answer(uint32_t pool, enum gp_record_kind kind, const uint64_t *values);

/* In a forked child: what other threads held is nobody's any more. */
void gp_record_pools_after_fork_child(void);
