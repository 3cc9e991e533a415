/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "foreign_free.h"

#include <stdlib.h>

#include "driver_pool.h"
#include "pool/pool.h"
#include "pool/tuning.h"
#include "shim/base/clock.h"
#include "shim/base/fork.h"
#include "shim/context/adopt.h"
#include "shim/context/capture.h"
#include "shim/context/context_seen.h"
#include "shim/context/driver_call.h"
#include "shim/context/grace.h"
#include "shim/context/scope.h"
#include "shim/context/survivor.h"
#include "shim/driver/driver_table.h"
#include "shim/driver/launch_abi.h"

struct free {
	struct gp_survivor *survivor; /* of an ended context; or NULL: */
	struct gp_claimed claimed;    /* the block of a pool */
	struct gp_stream stream;   /* its context is NULL: the free is in no stream's order, and has a grace period */
	unsigned long long ctx_id; /* handles are used again, and the event ends with its context */
	bool has_ctx_id;           /* false: the driver did not tell the id */
	CUevent event;             /* recorded on the stream at the free */
	struct gp_capture_free capture;
	bool is_captured; /* something captured at the free, as `capture` tells */
	bool is_uncached; /* the thread was in a no-cache scope */
	struct gp_grace grace;
	bool has_grace; /* the period has begun */
	int device;
	uint64_t bytes, number; /* later frees have greater numbers */
	struct free *next;
};

static struct gp_mutex lock = GP_MUTEX_INIT(GP_RANK_LEAF);
static struct free *first, **last = &first; /* nearly in the order of the frees: threads poll at the same time */
static uint64_t last_number;
static _Atomic unsigned n_pending[GP_DEVICES_MAX];   /* by device */
static _Atomic uint64_t ended_bytes[GP_DEVICES_MAX]; /* likewise: all that have come back so far */
_Atomic unsigned gp_foreign_n_frees;

/* The child calls no driver and has no use for the list. */
static void reset_in_child(void)
{
	gp_mutex_init(&lock, GP_RANK_LEAF);
}

/* Gives back what was taken for a poll. Frees that have begun meanwhile come after it. */
static void put_back(struct free *list, struct free **end)
{
	if (!list)
		return;
	gp_mutex_lock(&lock);
	*end = first;
	if (!first)
		last = end;
	first = list;
	gp_mutex_unlock(&lock);
}

static void add(struct free *free)
{
	static struct gp_fork_child child = {.fn = reset_in_child};

	gp_fork_on_child(&child);
	atomic_fetch_add(&n_pending[free->device], 1);
	atomic_fetch_add(&gp_foreign_n_frees, 1);
	free->next = NULL;
	gp_mutex_lock(&lock);
	free->number = ++last_number;
	*last = free;
	last = &free->next;
	gp_mutex_unlock(&lock);
}

static void do_nothing(void *unused)
{
}

/*
 * A free by the driver is an operation. On the legacy stream and on streams that follow it, an operation waits for
 * earlier work of other streams, and an event is none. So such a stream first gets an operation of the same kind, or if
 * there is no memory for that, a call of the host, for which the driver wakes a thread.
 */
static CUresult follow_others(CUstream handle)
{
	CUdeviceptr ptr;
	CUresult r = gp_real.cuMemAllocAsync(&ptr, 1, handle);

	if (r)
		return gp_real.cuLaunchHostFunc(handle, do_nothing, NULL);
	r = gp_real.cuMemFreeAsync(ptr, handle);
	return r ? gp_real.cuMemFreeAsync(ptr, handle) : r; /* only gpupool can free it, so it tries again */
}

/* Records the work that precedes the free in a new event. The stream's context need not be current. */
static CUresult record(CUstream handle, const struct gp_stream *stream, CUevent *ret_event)
{
	struct gp_driver_scope scope;
	CUresult r = gp_driver_enter(&scope, stream->ctx);

	if (r)
		return r;
	if (stream->is_blocking)
		r = follow_others(handle);
	if (!r)
		r = gp_real.cuEventCreate(ret_event, CU_EVENT_DISABLE_TIMING);
	if (!r) {
		r = gp_real.cuEventRecord(*ret_event, handle);
		if (r)
			(void)gp_real.cuEventDestroy_v2(*ret_event);
	}
	gp_driver_leave(&scope);
	return r;
}

/* *ret_id: the context's id. Drivers that have ids of streams also have ids of contexts. */
static CUresult ask_id(CUcontext ctx, unsigned long long *ret_id)
{
	*ret_id = 0;
	return gp_real.cuCtxGetId ? gp_real.cuCtxGetId(ctx, ret_id) : CUDA_ERROR_NOT_FOUND;
}

/* True if the error means that the context, and so its work, has ended. After any other one the work may go on. */
static bool is_end(CUresult r)
{
	return gp_driver_is_sticky(r) || r == CUDA_ERROR_DEINITIALIZED || r == CUDA_ERROR_INVALID_VALUE;
}

/* Takes the survivor with that address from the program. False if there is none. */
static bool begin_survivor(CUdeviceptr ptr, struct free *free)
{
	const struct gp_device *device;
	struct gp_block_info info;

	if (!gp_survivor_find(ptr, &info, &device))
		return false;
	gp_driver_pool_keep_highs(gp_device_if_used(device->index));
	free->survivor = gp_survivor_take(ptr);
	if (!free->survivor)
		return false;
	free->device = gp_survivor_device(free->survivor)->index;
	free->bytes = gp_survivor_bytes(free->survivor);
	return true;
}

/* Takes the block from the program. It may leave its pool meanwhile, since the context ends. */
static int begin(CUdeviceptr ptr, struct free *free)
{
	int r = gp_pool_free_begin(&gp_state.device_map, ptr, &free->claimed);

	if (!r) {
		free->device = ((struct gp_context *)gp_pool_owner(free->claimed.pool))->device->index;
		free->bytes = free->claimed.block->size;
	} else if ((r == GP_E_FOREIGN || r == GP_E_DEAD) && begin_survivor(ptr, free)) {
		r = 0;
	}
	return r;
}

static void end(struct free *free)
{
	if (free->survivor)
		gp_survivor_end(free->survivor);
	else
		gp_pool_free_end(&free->claimed, free->is_uncached, free->is_captured ? &free->capture : NULL);
	if (free->is_captured)
		gp_capture_free_done(&free->capture);
}

/* With a driver before CUDA 12.5 a fence makes the host wait, and so does this. */
static void wait_for_all(const CUcontext *contexts, unsigned n)
{
	struct gp_driver_scope scope;

	for (unsigned i = 0; i < n; i++) {
		if (gp_driver_enter(&scope, contexts[i]))
			continue;
		(void)gp_real.cuCtxSynchronize();
		gp_driver_leave(&scope);
	}
}

/*
 * True if a free in no stream's order is done. The period begins once all work of the process can be asked for, so
 * contexts in which the program has allocated nothing become known here. Where a context has ended or failed, its work
 * has ended, too. Not while a stream captures.
 */
static bool is_grace_over(struct free *free)
{
	CUcontext seen[GP_CONTEXTS_SEEN_MAX];
	unsigned n;

	if (!gp_real.cuCtxRecordEvent) {
		wait_for_all(seen, gp_context_seen_all(seen));
		return true;
	}
	n = free->has_grace ? 0 : gp_context_seen_all(seen);
	for (unsigned i = 0; i < n; i++)
		(void)gp_context_adopt(seen[i]);
	if (!free->has_grace)
		free->has_grace = gp_grace_begin(&free->grace, gp_survivor_device(free->survivor));
	return free->has_grace && gp_grace_ask(&free->grace) != GP_GRACE_RUNS;
}

int gp_foreign_free_survivor(CUdeviceptr ptr)
{
	struct free *free_ = calloc(1, sizeof(*free_));

	if (!free_)
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (!begin_survivor(ptr, free_)) {
		free(free_);
		return GP_E_FOREIGN;
	}
	add(free_);
	gp_foreign_poll();
	return 0;
}

int gp_foreign_free(CUdeviceptr ptr, CUstream handle, const struct gp_stream *stream)
{
	struct free *free_ = calloc(1, sizeof(*free_));
	int r = CUDA_ERROR_OUT_OF_MEMORY;

	if (free_) {
		free_->stream = *stream;
		free_->has_ctx_id = !ask_id(stream->ctx, &free_->ctx_id);
		r = record(handle, stream, &free_->event);
	}

	if (!r) {
		r = begin(ptr, free_);
		if (r)
			(void)gp_real.cuEventDestroy_v2(free_->event);
	}
	if (r) {
		free(free_);
		return r;
	}
	/* A graph may use the block, too. The capture itself does not get it again, since its stream may be busy. */
	free_->is_captured = gp_capture_of_free(&free_->capture);
	free_->capture.may_reuse = false;
	free_->is_uncached = gp_scope_no_caches != 0;
	add(free_);
	gp_foreign_poll();
	return 0;
}

/*
 * True if the work is done. If the stream's context has ended or failed, its work has ended, too; while a context is
 * being ended, its work may go on.
 */
static bool is_done(struct free *free)
{
	CUcontext ctx = free->stream.ctx;
	struct gp_driver_scope scope;
	unsigned long long id;
	bool is;
	CUresult r;

	if (!ctx)
		return is_grace_over(free);
	r = free->has_ctx_id ? ask_id(ctx, &id) : CUDA_SUCCESS;
	if (!r && free->has_ctx_id && id != free->ctx_id)
		r = CUDA_ERROR_CONTEXT_IS_DESTROYED;
	if (!r)
		r = (CUresult)gp_driver_enter(&scope, ctx);
	if (r)
		return is_end(r) && !atomic_load(&gp_contexts_ending);
	r = gp_real.cuEventQuery(free->event);
	/* Without an id: another context may have got the handle, and has no such event. */
	is = !r || is_end(r) || (!free->has_ctx_id && r == CUDA_ERROR_INVALID_HANDLE);
	if (is)
		(void)gp_real.cuEventDestroy_v2(free->event);
	gp_driver_leave(&scope);
	return is;
}

/* Frees whose work goes on, as a poll has found. It asks about no later free on their streams. */
enum { BUSY_MAX = 8 };
struct busy {
	unsigned n;
	const struct free *frees[BUSY_MAX];
};

static bool is_behind(const struct busy *busy, const struct free *free)
{
	for (unsigned i = 0; i < busy->n; i++) {
		const struct free *other = busy->frees[i];

		if (other->stream.ctx == free->stream.ctx && other->stream.number == free->stream.number &&
			other->number < free->number)
			return true;
	}
	return false;
}

/* Ends the free if its work is done. */
static bool try_end(struct free *one, struct busy *busy)
{
	if (is_behind(busy, one))
		return false;
	if (!is_done(one)) {
		if (one->stream.number && busy->n < BUSY_MAX)
			busy->frees[busy->n++] = one;
		return false;
	}
	end(one);
	/* A thread that waits must see the bytes once it sees that the free is no longer pending. */
	atomic_fetch_add(&ended_bytes[one->device], one->bytes);
	atomic_fetch_sub(&n_pending[one->device], 1);
	atomic_fetch_sub(&gp_foreign_n_frees, 1);
	gp_grace_forget(&one->grace);
	free(one);
	return true;
}

void gp_foreign_poll_slow(void)
{
	struct free *all, *kept = NULL, **end_of_kept = &kept;
	struct busy busy = {0};
	CUcontext current;

	/* A query of an event may be refused while a stream captures, and in a function that a stream calls. */
	if (!gp_capture_is_none() || gp_real.cuCtxGetCurrent(&current))
		return;
	gp_mutex_lock(&lock);
	all = first;
	first = NULL;
	last = &first;
	gp_mutex_unlock(&lock);
	while (all) {
		struct free *one = all;

		all = one->next;
		if (try_end(one, &busy))
			continue;
		*end_of_kept = one;
		end_of_kept = &one->next;
	}
	put_back(kept, end_of_kept);
}

bool gp_foreign_await(int device, uint64_t bytes)
{
	const struct gp_device *of = gp_device_if_used(device);
	uint64_t start_ns = gp_clock_now_ns(NULL), before, back = 0;

	/* Most processes have no such frees. No wait helps a request that is larger than the limit or the device. */
	if (!atomic_load(&gp_foreign_n_frees) || !of ||
		bytes > gp_min(atomic_load(&of->budget.limit_bytes), of->total_bytes))
		return false;
	before = atomic_load(&ended_bytes[device]);
	for (unsigned attempt = 0; back < bytes && atomic_load(&n_pending[device]) && gp_capture_is_none(); attempt++) {
		gp_foreign_poll_slow();
		back = atomic_load(&ended_bytes[device]) - before;
		if (gp_clock_now_ns(NULL) - start_ns > GP_UNFENCED_WAIT_NS)
			break;
		gp_clock_pause(NULL, attempt);
	}
	return atomic_load(&ended_bytes[device]) != before;
}
