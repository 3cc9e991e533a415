/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * The set of capturing streams. While a stream captures, a fence record or a GPU wait would invalidate the capture, in
 * every capture mode. So fence calls and captures exclude each other. A fence call checks gp_capture_is_none() first,
 * under the lock of the context's fences. A capture begins only when every fence call that checked before has ended.
 *
 * Memory that is allocated or freed during a capture may be used by the captured graph each time it is launched. So the
 * pool retains it (pool/retain.h) until the graph, its clones and its executables are gone, of which a user object of
 * the graph tells. A thread takes part in a capture if it began it, or has submitted work to a stream of it:
 *
 *   - A block that such a thread allocates belongs to the capture.
 *   - A block that any thread frees during the capture is retained, except one that the same thread allocated during
 *     the capture without taking part in it.
 *   - A block in which nothing was captured between its allocation and its free is not retained.
 *
 * Within a capture memory is used again while its work can be in one order only: all work is captured from one stream,
 * and the program has recorded no event in it, has not asked for its nodes and has launched no kernel that may begin
 * early. No work may have been submitted outside of the capture between the allocation and the free, since launches of
 * the graph would not wait for it.
 */

#include <stdatomic.h>
#include <stdbool.h>

#include "pool/retainer.h"
#include "shim/driver/cuda_abi.h"
#include "shim/driver/submit.h"

extern _Atomic unsigned gp_capturing; /* captures that run or are about to begin */

/* True if a fence call is allowed now. The caller must hold the lock of the context's fences. */
static inline bool gp_capture_is_none(void)
{
	return atomic_load(&gp_capturing) == 0;
}

/* True if this stream is capturing. is_per_thread: a stream of NULL means the thread's own default stream. */
bool gp_capture_is_on(CUstream stream, bool is_per_thread);

/*
 * Notes that a fence call was refused. Every RECHECK_EVERY calls it asks the driver whether the captures in the set
 * still run.
 */
void gp_capture_refused(void);

/* A capture, identified by the stream that it began on. A thread's own stream differs in each thread and context. */
struct gp_capture {
	CUstream stream; /* NULL: no capture */
	CUcontext ctx;
	int thread;      /* the thread, if the stream is a thread's own default stream; else 0 */
	uint64_t number; /* in the set; 0: it is not there */
	CUgraph graph;   /* the program's graph that gets the nodes; NULL: the end of the capture makes one */
};

/* Called before the driver begins a capture, and after that with its result. graph: as in struct gp_capture. */
void gp_capture_begin(struct gp_capture *capture, CUstream stream, bool is_per_thread, CUgraph graph);
void gp_capture_begun(struct gp_capture *capture, CUresult r);

/*
 * Called before the driver ends a capture or destroys a stream, and after that with the driver's result and the graph
 * that it returned, or NULL. gp_capture_end finds the capture in the set. gp_capture_ended removes it unless it still
 * runs. has_graph: false if what was captured lives on without a graph.
 */
void gp_capture_end(struct gp_capture *capture, CUstream stream, bool is_per_thread);
void gp_capture_ended(const struct gp_capture *capture, CUresult r, CUgraph graph, bool has_graph);

/* Forgets the captures of a context that has ended. */
void gp_capture_forget_context(CUcontext ctx);

/*
 * Describe an allocation or a free of this thread to the pool, while a stream captures. Return false if none does.
 * After true, gp_capture_alloc_done or gp_capture_free_done must follow the pool's call.
 */
bool gp_capture_of_alloc(struct gp_capture_alloc *ret_how);
void gp_capture_alloc_done(struct gp_capture_alloc *how);
bool gp_capture_of_free(struct gp_capture_free *ret_how);
void gp_capture_free_done(struct gp_capture_free *how);

void gp_capture_note_work(CUstream stream, int flags);
void gp_capture_note_fork(CUstream stream, int flags, bool shows_graph);

/*
 * Notes that work is about to be submitted. A stream of NULL is the thread's own default stream if the function's flags
 * are not 0, otherwise the legacy stream.
 */
static inline void gp_capture_see(CUstream stream, int flags)
{
	if (__builtin_expect(!gp_capture_is_none(), 0))
		gp_capture_note_work(stream, flags);
}

/* Notes a call that may let later work of the stream's capture overtake what was captured so far. */
static inline void gp_capture_see_fork(CUstream stream, int flags)
{
	if (__builtin_expect(!gp_capture_is_none(), 0))
		gp_capture_note_fork(stream, flags, false);
}

/* Notes that the program gets to know the graph of the stream's capture. */
static inline void gp_capture_see_graph(CUstream stream, int flags)
{
	if (__builtin_expect(!gp_capture_is_none(), 0))
		gp_capture_note_fork(stream, flags, true);
}
