/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * The first cuMemFreeAsync of a process takes the driver 7 to 13 ms (measured on an H200), later ones some
 * microseconds. No thread of the program waits for that: what is released in a context until one call has returned
 * there is queued, and a thread of gpupool's own makes the calls and ends. It is started only when memory is released,
 * so a program that keeps its memory never has it.
 *
 * While anything of a context is queued, the thread alone uses the private stream: a cuStreamSynchronize of that stream
 * beside the first cuMemFreeAsync let a later one crash in the driver (580.159.04).
 */

#include <stdatomic.h>

#include "../pool/base.h"
#include "cuda_abi.h"

struct gp_context;

/* The part of a context. Once a call has returned and nothing is queued, nothing ever is again. */
struct gp_first_release {
	_Atomic bool is_over;	   /* a call has returned */
	_Atomic unsigned n_queued; /* and not released yet */
	_Atomic int error;	   /* of a call, not reported yet */
};

enum gp_first_release_way {
	GP_FIRST_RELEASE_OVER,	 /* the caller is to call the driver itself */
	GP_FIRST_RELEASE_QUEUED, /* it is released once the fence in the slot is complete, or at once with GP_NO_SLOT */
	GP_FIRST_RELEASE_FULL,	 /* the caller leaves the context, waits (gp_first_release_await) and tries again */
};

/* The context is entered. */
enum gp_first_release_way gp_first_release_queue(struct gp_context *context, CUdeviceptr addr, int slot);

/* Whether anything of the context waits in the queue. */
bool gp_first_release_is_pending(const struct gp_context *context);

/* What the driver answered to a queued release, once; or 0. */
int gp_first_release_take_error(struct gp_context *context);

/* Waits until nothing of the context waits in the queue. */
void gp_first_release_await(const struct gp_context *context);

/*
 * The driver still knows what is queued, and would take it for memory of the program's: before it is asked about an
 * address, this waits until it has been told.
 */
extern _Atomic bool gp_first_release_is_running;
void gp_first_release_settle_slow(CUdeviceptr addr);

static inline void gp_first_release_settle(CUdeviceptr addr)
{
	if (gp_unlikely(atomic_load_explicit(&gp_first_release_is_running, memory_order_relaxed)))
		gp_first_release_settle_slow(addr);
}

/* For the end of the process: drops what is queued, and waits for a call that is under way (at most a second). */
void gp_first_release_end(void);

void gp_first_release_after_fork_child(void);
