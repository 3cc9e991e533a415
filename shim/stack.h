/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* Who is calling: return addresses up the thread's stack. */

#include "config_stacks.h"

enum { GP_STACK_MAX = GP_STACKS_DEPTH_MAX };

/*
 * Finds the unwinder, for which a library may have to be loaded: so not while a lock is held. 0, or -ENOENT if there is
 * none, and then stacks are empty. May be called again.
 */
int gp_stack_prepare(void);

/*
 * The innermost frames, return addresses and places (place.h), that are neither gpupool's nor the CUDA runtime's, at
 * most depth of them. How many. Allocates nothing and takes no lock but, on some machines, one of the loader's that
 * nobody keeps while he runs code of others.
 */
unsigned gp_stack_take(uintptr_t *frames, unsigned depth);
