/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* What the programs about captures share. */

#include "tests/preload/app_driver.h"
#include "tests/sim/abi.h"

#define GLOBAL  CU_STREAM_CAPTURE_MODE_GLOBAL
#define LOCAL   CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
#define RELAXED CU_STREAM_CAPTURE_MODE_RELAXED

enum { LIFE_ROUNDS = 96 };

static const char *const mode_names[] = {"global", "local", "relaxed"};

/* Makes the mode the thread's, and returns the one before. */
static inline int exchange(int mode)
{
	APP_MUST(cuThreadExchangeStreamCaptureMode(&mode));
	return mode;
}

/* How many of the addresses are different ones. */
static inline unsigned count_different(const CUdeviceptr *ptr, unsigned n)
{
	unsigned count = 0;

	for (unsigned i = 0; i < n; i++) {
		bool is_new = true;

		for (unsigned k = 0; k < i && is_new; k++)
			is_new = ptr[k] != ptr[i];
		count += is_new;
	}
	return count;
}

/*
 * Memory still comes and goes, and is used again: as a fact how many addresses that took, which is few if the fences
 * work again.
 */
static inline void go_on(const char *after)
{
	CUdeviceptr seen[LIFE_ROUNDS];
	char fact[64];
	CUresult r = CUDA_SUCCESS, f = CUDA_SUCCESS;

	for (unsigned i = 0; i < LIFE_ROUNDS && !r && !f; i++) {
		r = cuMemAlloc_v2(&seen[i], 4 * MIB);
		if (r)
			break;
		app_fill(NULL, seen[i], 4096, i);
		f = cuMemFree_v2(seen[i]);
	}
	app_result("allocations afterwards", r);
	app_result("frees afterwards", f);
	app_result("context afterwards", cuCtxSynchronize());
	snprintf(fact, sizeof(fact), "addresses after %s", after);
	if (!r && !f)
		app_fact(fact, count_different(seen, LIFE_ROUNDS));
}
