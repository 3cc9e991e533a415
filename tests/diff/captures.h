/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* Helpers that the programs about captures share. */

#include "tests/preload/app_driver.h"
#include "tests/sim/abi.h"

#define GLOBAL  CU_STREAM_CAPTURE_MODE_GLOBAL
#define LOCAL   CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
#define RELAXED CU_STREAM_CAPTURE_MODE_RELAXED

enum { LIFE_ROUNDS = 96 };

static const char *const mode_names[] = {"global", "local", "relaxed"};

/* Sets the thread's capture mode, and returns the previous one. */
static inline int exchange(int mode)
{
	APP_MUST(cuThreadExchangeStreamCaptureMode(&mode));
	return mode;
}

/* Counts the distinct addresses. */
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
 * Checks that memory is still allocated, freed and reused. Reports the number of distinct addresses as a fact: it is
 * small if the fences work again.
 */
static inline void check_reuse_after(const char *after)
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
