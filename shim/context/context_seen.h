/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* The contexts that the program can work in, with or without a pool. Their handles are all that is known of them. */

#include <stdatomic.h>
#include <stdbool.h>

#include "shim/driver/cuda_abi.h"

/*
 * Note a context that the program can work in. From the second context on, the next work that uses memory of one
 * context may run in another, so reuse then waits for completion.
 */
void gp_context_seen(CUcontext handle);
void gp_context_seen_primary(CUcontext handle, CUdevice device);

/* Forgets the handle of a context that has ended. A primary context's handle stays known as such. */
void gp_context_forget(CUcontext handle);

/* True if the program can work in a context with that handle. */
bool gp_context_is_seen(CUcontext handle);

/* True once a context has ended. */
extern _Atomic bool gp_contexts_have_ended;

/* True if there has been a context. */
bool gp_context_were_any(void);

/* Return the primary context of a device, or NULL if it is not known; and whether a handle is known to be one. */
CUcontext gp_context_seen_as_primary(CUdevice device);
bool gp_context_is_seen_primary(CUcontext handle);

/* Returns the primary context of a device, or NULL. Asks the driver if the program has not obtained it. */
CUcontext gp_context_primary(CUdevice device);

/*
 * Copies the handles of all contexts that the program can work in. Returns their number, or 0 if there are more than
 * that, or there was no host memory to note one.
 */
enum { GP_CONTEXTS_SEEN_MAX = 64 };
unsigned gp_context_seen_all(CUcontext ret_handles[static GP_CONTEXTS_SEEN_MAX]);

/* Usage counts: a context survives as many detaches as it was attached. */
void gp_context_attach(CUcontext handle);
void gp_context_detach(CUcontext handle);
bool gp_context_is_attached(CUcontext handle);

/* In a forked child: resets the lock that another thread may have held. */
void gp_context_seen_reset(void);
