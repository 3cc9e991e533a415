/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* Looks up the functions of shared CUDA runtimes. */

#include "runtime.h"

/* Looks up the caller's runtime. Functions that are not found are NULL. Takes the loader's lock. */
void gp_runtime_find(uintptr_t caller, struct gp_runtime_caller *found);

/* Returns true if both have the same functions. */
bool gp_runtime_is_same(struct gp_runtime *a, struct gp_runtime *b);

/* Returns the index of the row of runtime.def with that name, or -1. */
int gp_runtime_index(const char *symbol);

/* Returns gpupool's own function of the row. */
void *gp_runtime_hook(int index);

/* Return the row's function of the next runtime in the global scope, or of any loaded runtime; or NULL. */
void *gp_runtime_behind(int index);
void *gp_runtime_anywhere(int index);
