/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * The driver's own functions, found once libcuda is in the process, and how gpupool's take their place: a
 * program that asks for a function gets ours exactly where the driver's answer is the address of one in the table.
 */

#include <stdatomic.h>
#include <stdbool.h>

#include "cuda_abi.h"

struct gp_real {
#define HOOK(symbol, name, version, flags, parameters, arguments) CUresult(*symbol) parameters;
#define CALL(symbol, parameters) CUresult(*symbol) parameters;
#include "hooks.def"
};

/* Valid once gp_real_ready() has said so; members are NULL where the driver has no such function. */
extern struct gp_real gp_real;

/* The bodies. Each may assume that gp_real is valid. */
#define HOOK(symbol, name, version, flags, parameters, arguments) CUresult hook_##symbol parameters;
#include "hooks.def"

extern _Atomic bool gp_real_is_ready;
bool gp_real_find(void);
void gp_real_after_fork_child(void);

/*
 * Whether everything that submits work to a stream is hooked (work.def): not where the driver is newer than that table,
 * or answers with other functions than it exports, or where somebody else stands in the way. Valid as gp_real is.
 */
bool gp_real_sees_work(void);

/* The C library's, which loader.S jumps to. Finds dlsym; false if there is none. */
typedef void *gp_dlsym_fn(void *handle, const char *name);
extern _Atomic(gp_dlsym_fn *) gp_real_dlsym;
extern _Atomic(void *) gp_real_dlopen;
bool gp_real_dlsym_resolve(void);

/* Whether the driver's functions are known; looks for them if not. False while libcuda is not in the process. */
static inline bool gp_real_is_found(void)
{
	return atomic_load_explicit(&gp_real_is_ready, memory_order_acquire);
}

static inline bool gp_real_ready(void)
{
	return gp_real_is_found() || gp_real_find();
}

/* Ours for an address of the driver's, or the address itself. */
void *gp_real_replace(void *address);

/* The number of the row with that exported name, or -1. */
int gp_real_index(const char *symbol);

/* Whether it is one that submits (work.def). */
bool gp_real_is_work(int index);

/* The exported function of a row. */
void *gp_real_hook(int index);
void *gp_real_original(int index);

/* The C library's dlsym; never ours. */
void *gp_real_dlsym_call(void *handle, const char *name);
