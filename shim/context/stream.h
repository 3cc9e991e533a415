/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * The streams of allocations and frees in stream order (GPUPOOL_ASYNC). A stream is known by a number that no other
 * stream ever has, since the driver uses handles again.
 *
 * A thread remembers the streams that it has used lately, and asks the driver about a handle only if it may stand for
 * another stream by now. Streams end by cuStreamDestroy, and with their contexts. The hooks of these functions make all
 * threads ask again (gp_stream_forget). Once such calls may go unseen (GP_SLOW_PATH_CONTEXTS), nothing is remembered.
 */

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "shim/base/slow_path.h"
#include "shim/driver/cuda_abi.h"
#include "shim/driver/launch_abi.h"

struct gp_stream {
	CUcontext ctx;
	uint64_t number;  /* 0: unknown, since there was no host memory */
	bool is_legacy;   /* it is the legacy stream */
	bool is_blocking; /* it is the legacy stream, or it and the legacy stream wait for each other's work */
};

/* A created stream, as a thread remembers it. */
enum { GP_THREAD_STREAMS = 8 };
struct gp_known_stream {
	CUstream handle;
	uint64_t generation; /* gp_stream_generation when the driver was asked; 0: the entry is free */
	unsigned long long id;
	CUcontext ctx;
	bool is_blocking;
};

/* The streams that a thread remembers. */
struct gp_thread_streams {
	uint64_t own_number; /* of the thread's own default stream, in every context; 0: none yet */
	struct gp_known_stream known[GP_THREAD_STREAMS];
};

/* The number of the legacy stream. Those of created streams are odd. */
enum { GP_STREAM_OF_LEGACY = 2 };

/* Changes each time a stream may have ended. */
extern _Atomic uint64_t gp_stream_generation;

/* To be called before, and again after, the driver ends a stream or a context. */
static inline void gp_stream_forget(void)
{
	(void)atomic_fetch_add(&gp_stream_generation, 1);
}

static inline unsigned gp_stream_slot(CUstream handle)
{
	return (unsigned)(((uintptr_t)handle * UINT64_C(0x9e3779b97f4a7c15)) >> 61);
}

_Static_assert(GP_THREAD_STREAMS == 1 << (64 - 61), "the hash fits");

static inline bool gp_stream_is_default(CUstream handle)
{
	return (uintptr_t)handle <= (uintptr_t)CU_STREAM_PER_THREAD;
}

/* True if a default stream is the legacy one. is_per_thread: NULL means the thread's own default stream. */
static inline bool gp_stream_is_legacy(CUstream handle, bool is_per_thread)
{
	return handle ? handle == CU_STREAM_LEGACY : !is_per_thread;
}

/*
 * Finds out which stream a handle stands for, without a driver call. Default streams belong to the current context.
 * Returns false if gp_stream_identify has to be called, with the context that the driver says is current.
 */
static inline bool gp_stream_recall(const struct gp_thread_streams *streams, CUstream handle, bool is_per_thread,
	CUcontext current, struct gp_stream *ret_stream)
{
	const struct gp_known_stream *known;

	if (gp_stream_is_default(handle)) {
		bool is_legacy = gp_stream_is_legacy(handle, is_per_thread);
		uint64_t number = is_legacy ? GP_STREAM_OF_LEGACY : streams->own_number;

		*ret_stream = (struct gp_stream){current, number, is_legacy, true};
		return number != 0 && !gp_slow_path_is_any(GP_SLOW_PATH_CONTEXTS);
	}
	known = &streams->known[gp_stream_slot(handle)];
	*ret_stream = (struct gp_stream){known->ctx, (uint64_t)known->id << 1 | 1, false, known->is_blocking};
	return known->handle == handle &&
	       known->generation == atomic_load_explicit(&gp_stream_generation, memory_order_acquire) &&
	       !gp_slow_path_is_any(GP_SLOW_PATH_CONTEXTS);
}

/* True if the driver has the functions with which streams are identified. */
bool gp_stream_can_identify(void);

/*
 * As gp_stream_recall, but asks the driver if necessary. Returns false if the driver does not know the handle or has no
 * numbers for streams, or if there is no current context for a default stream.
 */
bool gp_stream_identify(CUstream handle, bool is_per_thread, CUcontext current, struct gp_stream *ret_stream);

/*
 * A kernel may be launched so that it begins before earlier work of its stream has finished (programmatic dependent
 * launch). It would not wait for work that used a block before the stream's last free of it. So a process has one of
 * two things, whichever comes first:
 *
 *   - Streams reuse at once what was freed on them, and such kernels are launched without the permission, which no
 *     program can rely on.
 *   - Such kernels are launched as they are, and freed blocks are reused on completion only.
 */
enum gp_stream_mode { GP_STREAM_UNDECIDED, GP_STREAM_IN_ORDER, GP_STREAM_EARLY };
extern _Atomic enum gp_stream_mode gp_stream_mode;

/* Decides on the mode if that is still open. Returns true if the process has this mode. */
bool gp_stream_decide(enum gp_stream_mode mode);

static inline bool gp_stream_is(enum gp_stream_mode mode)
{
	return atomic_load_explicit(&gp_stream_mode, memory_order_relaxed) == mode || gp_stream_decide(mode);
}
