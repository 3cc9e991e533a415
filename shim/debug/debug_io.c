/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "debug_io.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "shim/base/clock.h"
#include "shim/context/capture.h"
#include "shim/context/driver_call.h"
#include "shim/driver/driver_table.h"

/*
 * Limit of the wait for a copy. A copy that takes longer is queued behind other work, because the driver maps streams
 * to a limited number of hardware queues. An allocation that waited for such a copy without a limit could wait
 * forever, where the driver's own call would not have waited at all.
 */
#define WAIT_MAX_NS UINT64_C(1000000000)

/* State of one context. The stream and the buffer end with the context. */
struct gp_debug_io {
	struct gp_mutex lock;
	CUstream stream;
	unsigned char *staging; /* pinned, so that copies into it are asynchronous */
	bool is_under_way;      /* an earlier copy or fill may still run */
};

static void free_io(struct gp_debug_io *io)
{
	gp_mutex_deinit(&io->lock);
	free(io);
}

static struct gp_debug_io *io_of(struct gp_context *context)
{
	struct gp_debug_io *io = atomic_load(&context->debug_io), *none = NULL;

	if (io)
		return io;
	io = calloc(1, sizeof(*io));
	if (!io)
		return NULL;
	gp_mutex_init(&io->lock, GP_RANK_ZONE_IO);
	if (atomic_compare_exchange_strong(&context->debug_io, &none, io))
		return io;
	free_io(io);
	return none;
}

void gp_debug_io_free(struct gp_context *context)
{
	struct gp_debug_io *io = atomic_load(&context->debug_io);

	if (io)
		free_io(io);
}

static bool can_copy(void)
{
	return gp_real.cuMemcpyDtoHAsync_v2 && gp_real.cuMemcpyHtoDAsync_v2 && gp_real.cuMemsetD32Async &&
	       gp_real.cuStreamCreate;
}

static CUresult prepare_locked(struct gp_debug_io *io)
{
	CUresult r = CUDA_SUCCESS;
	void *staging;

	if (!io->stream)
		r = gp_real.cuStreamCreate(&io->stream, CU_STREAM_NON_BLOCKING);
	if (r || io->staging)
		return r;
	r = gp_real.cuMemHostAlloc(&staging, GP_DEBUG_IO_BYTES, 0);
	if (!r)
		io->staging = staging;
	return r;
}

static int wait_locked(struct gp_debug_io *io)
{
	uint64_t start_ns = gp_clock_now_ns(NULL);
	CUresult r;

	for (unsigned attempt = 0; (r = gp_real.cuStreamQuery(io->stream)) == CUDA_ERROR_NOT_READY; attempt++) {
		if (gp_clock_now_ns(NULL) - start_ns >= WAIT_MAX_NS)
			break;
		gp_clock_pause(NULL, attempt);
	}
	return r == CUDA_ERROR_NOT_READY ? -ETIMEDOUT : r;
}

/*
 * One call and its pieces. run_locked handles device memory, with the context current and io->lock held. fn handles a
 * piece of pinned memory, or receives the bytes that were read from a piece of device memory.
 */
struct job {
	const struct gp_debug_piece *pieces;
	unsigned n;
	int (*run_locked)(struct gp_debug_io *io, const struct job *job);
	void (*fn)(void *arg, const struct gp_debug_piece *piece, const unsigned char *seen);
	void *arg;
};

static int run_locked(struct gp_debug_io *io, const struct job *job)
{
	int r;

	if (io->is_under_way && gp_real.cuStreamQuery(io->stream))
		return -EBUSY;
	io->is_under_way = false;
	r = prepare_locked(io);
	if (r)
		return r;
	r = job->run_locked(io, job);
	io->is_under_way = r != 0;
	return r;
}

static int run_on_device(struct gp_context *context, const struct job *job)
{
	struct gp_debug_io *io = can_copy() ? io_of(context) : NULL;
	struct gp_driver_scope scope;
	int r;

	if (!io || gp_context_is(context, GP_CONTEXT_BROKEN))
		return -EBUSY;
	r = gp_driver_enter(&scope, context->handle);
	if (r)
		return r;
	gp_mutex_lock(&io->lock);
	r = run_locked(io, job);
	gp_mutex_unlock(&io->lock);
	gp_driver_leave(&scope);
	return r;
}

static int run_on_host(const struct job *job)
{
	for (unsigned i = 0; i < job->n; i++)
		job->fn(job->arg, &job->pieces[i], (const unsigned char *)(uintptr_t)job->pieces[i].addr);
	return 0;
}

/*
 * Does nothing while any context is about to end. The memory of that context must not be touched. The thread that
 * ends it needs the context's lock exclusively, and many threads that hold it here for a long time could starve that
 * thread.
 */
static int run(struct gp_context *context, bool is_pinned, const struct job *job)
{
	int r;

	if (!is_pinned && !gp_capture_is_none()) {
		gp_capture_refused();
		return -EBUSY;
	}
	if (atomic_load(&gp_contexts_ending) || gp_context_try_enter(context) <= 0)
		return -EBUSY;
	r = is_pinned ? run_on_host(job) : run_on_device(context, job);
	gp_context_leave(context);
	return r;
}

static int read_locked(struct gp_debug_io *io, const struct job *job)
{
	unsigned char *at = io->staging;
	int r = 0;

	for (unsigned i = 0; i < job->n && !r; at += job->pieces[i++].bytes)
		r = gp_real.cuMemcpyDtoHAsync_v2(at, job->pieces[i].addr, job->pieces[i].bytes, io->stream);
	if (!r)
		r = wait_locked(io);
	at = io->staging;
	for (unsigned i = 0; i < job->n && !r; at += job->pieces[i++].bytes)
		job->fn(job->arg, &job->pieces[i], at);
	return r;
}

int gp_debug_io_read(struct gp_context *context, bool is_pinned, const struct gp_debug_piece *pieces, unsigned n,
	void (*fn)(void *arg, const struct gp_debug_piece *piece, const unsigned char *seen), void *arg)
{
	struct job job = {.pieces = pieces, .n = n, .run_locked = read_locked, .fn = fn, .arg = arg};

	return n ? run(context, is_pinned, &job) : 0;
}

static int guard_locked(struct gp_debug_io *io, const struct job *job)
{
	uint64_t largest = 0;
	int r = 0;

	for (unsigned i = 0; i < job->n; i++)
		largest = gp_max(largest, job->pieces[i].bytes);
	memset(io->staging, GP_DEBUG_GUARD, largest);
	for (unsigned i = 0; i < job->n && !r; i++)
		r = gp_real.cuMemcpyHtoDAsync_v2(job->pieces[i].addr, io->staging, job->pieces[i].bytes, io->stream);
	return r ? r : wait_locked(io);
}

static void guard_on_host(void *unused, const struct gp_debug_piece *piece, const unsigned char *seen)
{
	memset((void *)(uintptr_t)piece->addr, GP_DEBUG_GUARD, piece->bytes);
}

int gp_debug_io_guard(struct gp_context *context, bool is_pinned, const struct gp_debug_piece *pieces, unsigned n)
{
	struct job job = {.pieces = pieces, .n = n, .run_locked = guard_locked, .fn = guard_on_host};

	return n ? run(context, is_pinned, &job) : 0;
}

static int poison_locked(struct gp_debug_io *io, const struct job *job)
{
	CUresult r = gp_real.cuMemsetD32Async(
		job->pieces->addr, GP_DEBUG_POISON, job->pieces->bytes / sizeof(uint32_t), io->stream);

	return r ? r : wait_locked(io);
}

static void poison_on_host(void *unused, const struct gp_debug_piece *piece, const unsigned char *seen)
{
	uint32_t *at = (void *)(uintptr_t)piece->addr;

	for (uint64_t i = 0; i < piece->bytes / sizeof(*at); i++)
		at[i] = GP_DEBUG_POISON;
}

int gp_debug_io_poison(struct gp_context *context, bool is_pinned, const struct gp_debug_piece *piece)
{
	struct job job = {.pieces = piece, .n = 1, .run_locked = poison_locked, .fn = poison_on_host};

	return run(context, is_pinned, &job);
}
