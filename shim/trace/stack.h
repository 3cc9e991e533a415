/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* Call stacks: the return addresses on the thread's stack. */

#include "common/config_stacks.h"

enum { GP_STACK_MAX = GP_STACKS_DEPTH_MAX };

/*
 * Finds the unwinder. The caller may hold no lock, since a library may have to be loaded. Returns 0, or -ENOENT if
 * there is no unwinder: then stacks are empty. May be called again.
 */
int gp_stack_prepare(void);

/*
 * Stores the innermost frames, at most depth of them, without those of gpupool and the CUDA runtime. A frame is a
 * return address or a code location (location.h). Returns their number. Allocates nothing. May take a lock of the
 * loader, which no thread holds while it runs code outside the loader.
 */
unsigned gp_stack_take(uintptr_t *frames, unsigned depth);
