/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * The driver's own functions, which are found once libcuda is in the process, and the hooks that replace them. A
 * program that looks up a function gets gpupool's hook exactly if the driver's answer is the address of a function in
 * the table.
 */

#include <stdatomic.h>
#include <stdbool.h>

#include "cuda_abi.h"

struct gp_real {
#define HOOK(symbol, name, version, flags, parameters, arguments) CUresult(*symbol) parameters;
#define CALL(symbol, parameters)                                  CUresult(*symbol) parameters;
#include "hooks.def"
};

/*
 * True if events can be recorded for a whole context: cuGetProcAddress returns cuCtxRecordEvent, which exists since
 * CUDA 12.5. It is not enough that the driver exports that function. A driver without cuGetProcAddress_v2 is not asked.
 */
static inline bool gp_real_answers_for_fences(const struct gp_real *real)
{
	void *address = NULL;

	if (!real->cuGetProcAddress_v2)
		return true;
	(void)real->cuGetProcAddress_v2("cuCtxRecordEvent", &address, 12050, CU_GET_PROC_ADDRESS_DEFAULT, NULL);
	return address != NULL;
}

/* Valid once gp_real_ready() has returned true. A member is NULL if the driver lacks the function. */
extern struct gp_real gp_real;

/* The bodies of the hooks, which are in hooks/. They are called once gp_real is valid. */
#define HOOK(symbol, name, version, flags, parameters, arguments) CUresult hook_##symbol parameters;
#include "hooks.def"

extern _Atomic bool gp_real_is_ready;
bool gp_real_find(void);

/*
 * Returns why submissions may bypass the hooks of submit.def, or NULL if they cannot. Valid once gp_real is. Reasons:
 *
 *   - the driver is newer than that table;
 *   - cuGetProcAddress returns other functions than the driver exports;
 *   - another library intercepts functions of the driver, dlsym or dlopen.
 */
const char *gp_real_why_unseen(void);

/* Likewise for the hooks that only make sure that the process is awake (HOOK_PASSED). */
const char *gp_real_why_unexamined(void);

/* True if the driver's functions have been found. */
static inline bool gp_real_is_found(void)
{
	return atomic_load_explicit(&gp_real_is_ready, memory_order_acquire);
}

/* True if the driver's functions are available. Finds them if needed. False while libcuda is not in the process. */
static inline bool gp_real_ready(void)
{
	return gp_real_is_found() || gp_real_find();
}

/* Returns gpupool's hook for an address of the driver, or the address itself if it is not hooked. */
void *gp_real_replace(void *address);

/* Returns the number of the row with that exported name, or -1. */
int gp_real_index(const char *symbol);

/* True if the row's function submits work (submit.def). */
bool gp_driver_is_submitting(int index);

/*
 * Return the row's hook, and the function that the hook calls: the driver's or, if another preloaded library intercepts
 * it, that library's.
 */
void *gp_real_hook(int index);
void *gp_real_original(int index);
