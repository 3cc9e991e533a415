/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * A defect: the hooks do not report submissions. Included before each source of the library (-include).
 */

#ifndef __ASSEMBLER__

#include "pool/submission.h"

static inline void broken_enter(struct gp_submission_lane *lane)
{
	(void)atomic_fetch_add(&lane->n_submitting, 1);
}

#define gp_submission_note(work)        ((void)(work), true)
#define gp_submission_enter(work, lane) ((void)(work), broken_enter(lane), true)

#endif
