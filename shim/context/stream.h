/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * The streams of allocations and frees in stream order (GPUPOOL_ASYNC). A created stream is known by a number that no
 * other stream ever has, since the driver uses handles again. Default streams share one number.
 */

#include <stdatomic.h>
#include <stdbool.h>

#include "shim/driver/cuda_abi.h"

struct gp_stream {
	CUcontext ctx;
	uint64_t number;
	bool is_blocking; /* it is the legacy stream, or it and the legacy stream wait for each other's work */
};

/*
 * A stream that a thread has used lately. The driver is asked for the id each time, so that an entry of a destroyed
 * stream is not taken for another stream with the same handle.
 */
enum { GP_THREAD_STREAMS = 8 };
struct gp_known_stream {
	CUstream handle;
	unsigned long long id;
	CUcontext ctx;
	bool is_blocking;
};

/*
 * Finds out which stream a handle stands for. Default streams belong to the current context. Returns false if the
 * driver does not know the handle or has no numbers for streams.
 */
bool gp_stream_identify(CUstream handle, CUcontext current, struct gp_stream *ret_stream);

/*
 * A kernel may be launched so that it begins before earlier work of its stream has finished (programmatic dependent
 * launch). It would not wait for work that used a block before the stream's last free of it. So a process has one of
 * two things, whichever comes first:
 *
 *   - Non-blocking streams reuse at once what was freed on them, and such kernels are launched without the permission,
 *     which no program can rely on.
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
