/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* The C library's dlsym and dlopen, to which gpupool's own pass on calls (lookup.c). */

#include <stdatomic.h>
#include <stdbool.h>

/* loader.S jumps to both. lookup.c finds dlopen at its first call. */
typedef void *gp_dlsym_fn(void *handle, const char *name);
extern _Atomic(gp_dlsym_fn *) gp_real_dlsym;
extern _Atomic(void *) gp_real_dlopen;

/* Finds the C library's dlsym; false if there is none. */
bool gp_real_dlsym_resolve(void);

/* Calls the C library's dlsym, never gpupool's. */
void *gp_real_dlsym_call(void *handle, const char *name);

/* Returns the C library's function of that name: the one that is loaded after gpupool's. */
void *gp_real_dlsym_next(const char *name);

/*
 * Number of dlsym calls so far. If a library is loaded at the addresses of an unloaded one, the program can call it
 * only after a dlsym. So while this number stays the same, a caller's address still belongs to the same library.
 */
extern _Atomic unsigned gp_dlsym_calls;
