/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* Surveys the pools after an out-of-memory error. No lock may be held. */

#include "oom.h"

/* Sets the granule. To be called first, if device memory ran out. */
void gp_oom_find_granule(struct gp_oom *oom);

/* Sets the partly used segments, the least and movable bytes, and the largest free block. */
void gp_oom_survey(struct gp_oom *oom);
