/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * A defect: fences ignore the threads that are submitting. Included before each source of the library (-include).
 */

#ifndef __ASSEMBLER__

#include "pool/submission.h"

static inline uint64_t broken_look(struct gp_submissions *work)
{
	uint64_t word = atomic_fetch_or(&work->word, 1) | 1;

	return word == GP_SUBMISSION_UNSEEN ? GP_SUBMISSION_NO_EPOCH : word >> 1;
}

#define gp_submission_look(work) broken_look(work)

#endif
