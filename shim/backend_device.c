/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Device memory over the driver. Which call may be made when:
 *
 *   - Fences are not recorded nor ordered upon while a stream captures (capture.h): that would invalidate the capture,
 *     in every mode. A query would not in the relaxed one (measured).
 *   - A reservation is made as the program's own call would have made it: in its context and its capture mode.
 *   - Memory goes back in the relaxed capture mode, on a private stream (measured: harmless to captures, never waits).
 *
 * Drivers before CUDA 12.5 have no cuCtxRecordEvent: there the host waits for the context at the record, as the
 * program's own cudaFree would have, and every fence is complete. Nothing is locked during that wait but other records.
 */

#include "backend.h"

#include <errno.h>

#include "async.h"
#include "capture.h"
#include "debug.h"
#include "driver.h"
#include "libraries.h"
#include "log.h"
#include "others.h"
#include "real.h"
#include "record.h"

static int device_reserve(void *arg, uint64_t bytes, uint64_t *ret_addr)
{
	struct gp_context *context = arg;
	CUdeviceptr ptr = 0;
	CUresult r;

	gp_libraries_look();
	if (!gp_context_enter(context))
		return CUDA_ERROR_CONTEXT_IS_DESTROYED;
	r = gp_backend_take(context, &ptr, bytes);
	gp_context_leave(context);
	if (gp_unlikely(atomic_load_explicit(&context->amiss, memory_order_relaxed)))
		gp_backend_tell_slow(context);
	if (!r)
		gp_context_make_room(&gp_state.device_map, ptr, bytes);
	*ret_addr = ptr;
	/* A capture in the way is the program's business here: it gets the code that its own call would have got. */
	return r == CUDA_ERROR_OUT_OF_MEMORY ? -ENOMEM : r;
}

static int device_release(void *arg, uint64_t addr)
{
	struct gp_context *context = arg;
	struct gp_driver_scope scope;
	CUresult r;
	int lost_to;

	gp_debug_leave(addr, 0, true);
	if (!gp_driver_takes_back(context, &lost_to))
		return lost_to; /* the program may be told */
	r = gp_driver_enter(&scope, context->handle);
	if (!r) {
		r = gp_backend_is(context, GP_CONFIG_BACKEND_ASYNC) ? gp_async_release(context, addr)
								    : gp_real.cuMemFree_v2(addr);
		gp_driver_leave(&scope);
	}
	gp_context_leave(context);
	return gp_driver_released(context, r);
}

/* The private stream, once it waits for the fence. */
static CUresult release_stream(struct gp_context *context, int slot, CUstream *ret_stream)
{
	CUresult r = gp_driver_stream(&context->release_stream, ret_stream);

	if (!r && slot != GP_NO_SLOT && context->events[slot])
		r = gp_real.cuStreamWaitEvent(*ret_stream, context->events[slot], 0);
	return r;
}

/* Nothing was freed, so the free that waits may do better. */
static int release_not_begun(struct gp_context *context, CUresult r)
{
	(void)gp_driver_result(context, r);
	return atomic_load(&context->lost_to) ? (int)r : -ENOTSUP;
}

static int release_begin(struct gp_context *context, uint64_t addr, int slot)
{
	struct gp_driver_scope scope;
	bool is_begun = false;
	CUstream stream;
	CUresult r;

	gp_debug_leave(addr, 0, slot == GP_NO_SLOT);
	if (!gp_driver_takes_back(context, NULL))
		return 0;
	r = gp_driver_enter(&scope, context->handle);
	if (!r) {
		r = release_stream(context, slot, &stream);
		is_begun = !r;
		if (is_begun)
			r = gp_real.cuMemFreeAsync(addr, stream);
		gp_driver_leave(&scope);
	}
	gp_context_leave(context);
	return is_begun ? gp_driver_released(context, r) : release_not_begun(context, r);
}

/* Managed memory the driver takes back by the free alone that waits for the device. */
static bool device_can_release_behind(void *arg)
{
	struct gp_context *context = arg;

	return context->can_release_behind && !gp_backend_is(context, GP_CONFIG_BACKEND_MANAGED);
}

static int device_release_begin(void *arg, uint64_t addr, int slot)
{
	return device_can_release_behind(arg) ? release_begin(arg, addr, slot) : -ENOTSUP;
}

static int device_release_poll(void *arg)
{
	struct gp_context *context = arg;
	CUstream stream = atomic_load(&context->release_stream);
	struct gp_driver_scope scope;
	CUresult r = CUDA_SUCCESS;

	if (!stream || !gp_driver_takes_back(context, NULL))
		return 0;
	r = gp_driver_enter(&scope, context->handle);
	if (!r) {
		r = gp_real.cuStreamQuery(stream);
		/* Only a synchronisation makes the driver take the memory; here it has nothing to wait for. */
		if (!r)
			r = gp_real.cuStreamSynchronize(stream);
		gp_driver_leave(&scope);
	}
	gp_context_leave(context);
	return r == CUDA_ERROR_NOT_READY ? -EAGAIN : gp_driver_result(context, r);
}

static int device_release_drain(void *arg, uint64_t max_ns)
{
	uint64_t start_ns = gp_driver_now_ns(NULL);
	int r;

	for (unsigned attempt = 0; (r = device_release_poll(arg)) == -EAGAIN; attempt++) {
		if (max_ns != UINT64_MAX && gp_driver_now_ns(NULL) - start_ns >= max_ns)
			break;
		gp_driver_pause(NULL, attempt);
	}
	return r;
}

int gp_backend_event(struct gp_context *context, CUevent *event)
{
	struct gp_driver_scope scope;
	CUresult r;

	if (gp_likely(*event != NULL))
		return CUDA_SUCCESS;
	r = gp_driver_enter(&scope, context->handle);
	if (!r) {
		r = gp_real.cuEventCreate(event, CU_EVENT_DISABLE_TIMING);
		gp_driver_leave(&scope);
	}
	return r;
}

bool gp_backend_record_waits(void *unused)
{
	return !gp_real.cuCtxRecordEvent || !gp_real.cuCtxWaitEvent;
}

/*
 * The driver has later work wait for every record made in the context before an order, not only for the one that the
 * order names (measured). Of its own records the fence of this context knows which are due; those of pinned memory,
 * which is recorded in every context, are noted here. The lock keeps them from coming between a look and the order.
 */
static CUresult record_undue(struct gp_context *context, CUevent event)
{
	CUresult r;

	gp_mutex_lock(&context->undue_lock);
	r = gp_real.cuCtxRecordEvent(context->handle, event);
	if (!r)
		context->undue = event;
	gp_mutex_unlock(&context->undue_lock);
	return r;
}

static CUresult order_unless_undue(struct gp_context *context, CUevent event)
{
	CUresult r = CUDA_SUCCESS;

	gp_mutex_lock(&context->undue_lock);
	if (gp_unlikely(context->undue != NULL))
		r = gp_real.cuEventQuery(context->undue);
	if (!r) {
		context->undue = NULL;
		r = gp_real.cuCtxWaitEvent(context->handle, event);
	}
	gp_mutex_unlock(&context->undue_lock);
	return r;
}

int gp_backend_record(struct gp_context *context, CUevent event, bool is_due)
{
	struct gp_driver_scope scope;
	CUresult r;

	if (gp_likely(gp_real.cuCtxRecordEvent && gp_real.cuCtxWaitEvent))
		return is_due ? gp_real.cuCtxRecordEvent(context->handle, event) : record_undue(context, event);
	r = gp_driver_enter(&scope, context->handle);
	if (!r) {
		r = gp_real.cuCtxSynchronize();
		gp_driver_leave(&scope);
	}
	return r;
}

static CUresult record(struct gp_context *context, int slot)
{
	CUresult r = gp_backend_event(context, &context->events[slot]);

	return r ? r : gp_backend_record(context, context->events[slot], true);
}

static CUresult query(struct gp_context *context, int slot)
{
	return gp_real.cuEventQuery(context->events[slot]);
}

static CUresult order(struct gp_context *context, int slot)
{
	if (!gp_real.cuCtxRecordEvent || !gp_real.cuCtxWaitEvent)
		return CUDA_SUCCESS;
	return order_unless_undue(context, context->events[slot]);
}

/* 0 if the context is alive, and known to be. The end of it waits for the lock of the fence, which is held here. */
static int fence_refusal(const struct gp_context *context)
{
	if (gp_unlikely(gp_context_is(context, GP_CONTEXT_DEAD)))
		return CUDA_ERROR_CONTEXT_IS_DESTROYED;
	return gp_unlikely(gp_context_is(context, GP_CONTEXT_ENDING)) ? -EAGAIN : 0;
}

/*
 * A fence call: with no capture anywhere and the context alive. Both are looked at under a lock of the fence, which
 * whoever begins a capture or ends the context waits for (gp_pool_quiesce), so nothing else is locked here.
 */
static int fence_call(struct gp_context *context, int slot, CUresult (*call)(struct gp_context *, int))
{
	int r;

	if (gp_unlikely(!gp_capture_is_none())) {
		gp_capture_refused();
		return -EBUSY;
	}
	r = fence_refusal(context);
	if (r)
		return r;
	r = call(context, slot);
	return gp_driver_fence_result(context, r);
}

static int device_fence_record(void *arg, int slot, bool is_at_free, uint64_t *ret_epoch)
{
	*ret_epoch = gp_work_look(&gp_submitted);
	return fence_call(arg, slot, record);
}

static int device_fence_query(void *arg, int slot)
{
	struct gp_context *context = arg;
	struct gp_driver_scope scope;
	int r;

	if (gp_likely(gp_capture_is_none()))
		return fence_call(context, slot, query);
	gp_capture_refused();
	r = fence_refusal(context);
	if (r)
		return r;
	r = gp_driver_enter(&scope, context->handle);
	if (!r) {
		r = scope.is_relaxed ? query(context, slot) : CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
		gp_driver_leave(&scope);
	}
	return gp_driver_fence_result(context, r);
}

static int device_fence_order(void *arg, int slot)
{
	return fence_call(arg, slot, order);
}

void gp_device_give_back(struct gp_context *context, CUdeviceptr ptr)
{
	if (!context->can_release_behind || release_begin(context, ptr, GP_NO_SLOT))
		(void)device_release(context, ptr);
}

static bool device_trim_driver(void *arg)
{
	struct gp_context *context = arg;
	struct gp_driver_scope scope;
	CUmemoryPool pool;
	bool is_any = false;

	if (!gp_real.cuMemPoolTrimTo || !gp_context_enter(context))
		return false;
	if (!gp_driver_enter(&scope, context->handle)) {
		CUdevice device = context->device->index;

		if (gp_real.cuDeviceGetDefaultMemPool && !gp_real.cuDeviceGetDefaultMemPool(&pool, device))
			is_any |= !gp_real.cuMemPoolTrimTo(pool, 0);
		if (gp_real.cuDeviceGetMemPool && !gp_real.cuDeviceGetMemPool(&pool, device))
			is_any |= !gp_real.cuMemPoolTrimTo(pool, 0);
		is_any |= gp_async_trim(context);
		gp_driver_leave(&scope);
	}
	gp_context_leave(context);
	return is_any;
}

uint64_t gp_device_available(struct gp_context *context)
{
	struct gp_driver_scope scope;
	size_t available = 0, total;
	CUresult r = CUDA_ERROR_CONTEXT_IS_DESTROYED;

	if (gp_context_enter(context)) {
		r = gp_driver_enter(&scope, context->handle);
		if (!r) {
			r = gp_real.cuMemGetInfo_v2(&available, &total);
			gp_driver_leave(&scope);
		}
		gp_context_leave(context);
	}
	return r ? UINT64_MAX : available;
}

/* Managed memory makes way for what needs to be on the device, so that nothing is to be left free for it. */
static uint64_t device_available(void *arg)
{
	return gp_backend_is(arg, GP_CONFIG_BACKEND_MANAGED) ? UINT64_MAX : gp_device_available(arg);
}

static void device_detach(void *arg)
{
	gp_context_unref(arg);
}

static uint64_t device_ask_contexts(void *arg, uint64_t bytes)
{
	return gp_others_contexts(arg, bytes);
}

static uint64_t device_ask_processes(void *arg, uint64_t bytes)
{
	return gp_others_processes(arg, bytes);
}

static uint64_t device_ask_siblings(void *arg, uint64_t bytes, bool may_wait)
{
	return gp_others_siblings(arg, bytes, may_wait);
}

static const struct gp_backend_ops device_ops = {
	.mapping = &gp_mapping_ops,
	.reserve = device_reserve,
	.release = device_release,
	.can_release_behind = device_can_release_behind,
	.release_begin = device_release_begin,
	.release_poll = device_release_poll,
	.release_drain = device_release_drain,
	.fence_record = device_fence_record,
	.fence_record_waits = gp_backend_record_waits,
	.fence_query = device_fence_query,
	.fence_order = device_fence_order,
	.pause = gp_driver_pause,
	.trim_driver = device_trim_driver,
	.ask_contexts = device_ask_contexts,
	.ask_processes = device_ask_processes,
	.ask_siblings = device_ask_siblings,
	.available = device_available,
	.now_ns = gp_driver_now_ns,
	.detach = device_detach,
};

/* The host may be the first to touch it, and more than the device has can be had. */
static void set_for_managed(struct gp_pool_options *options)
{
	options->completion_only |= gp_state.config.reuse != GP_CONFIG_REUSE_ORDERED;
	options->capacity_bytes = UINT64_MAX;
}

/* The context's own is the first. */
static int pool_new(struct gp_context *context, enum gp_kind kind, uint64_t granule, struct gp_pool **ret_pool)
{
	struct gp_device *device = context->device;
	int r;
	struct gp_pool_options options = {
		.kind = kind,
		.backend = {.ops = &device_ops, .arg = context, .work = gp_backend_work(kind)},
		.map = &gp_state.device_map,
		.budget = &device->budget,
		.granule = granule,
		.page_bytes = gp_min(gp_state_page_bytes(), granule),
		.reserve_bytes = gp_state.config.reserve_bytes,
		.sibling = context->pool,
		.owner = context,
	};

	options.completion_only = atomic_load(&gp_state.needs_completion);
	gp_state_pool_options(&options, device->total_bytes, &device->budget);
	if (gp_backend_is(context, GP_CONFIG_BACKEND_MANAGED))
		set_for_managed(&options);
	gp_record_pool(&options, device->index, 0);
	r = gp_pool_new(&options, ret_pool);
	if (r) {
		gp_record_no_pool(&options);
		return r;
	}
	gp_context_ref(context);
	return 0;
}

int gp_device_sibling_new(struct gp_context *context, struct gp_pool **ret_pool)
{
	return pool_new(context, context->regions.kind, context->regions.granule, ret_pool);
}

/* The first of a context. Others will be like it. */
static int first_new(struct gp_context *context, enum gp_kind kind, uint64_t granule, struct gp_pool **ret_pool)
{
	context->regions.kind = kind;
	context->regions.granule = granule;
	return pool_new(context, kind, granule, ret_pool);
}

/* Where the driver cannot map memory, or the addresses for it are not to be had, split is the next best. */
static int mapped_pool_new(struct gp_context *context, struct gp_pool **ret_pool)
{
	uint64_t granule;
	int r = gp_mapping_setup(context, &granule);

	if (!r)
		r = first_new(context, GP_KIND_VMM, granule, ret_pool);
	if (r)
		atomic_fetch_or(&context->amiss, GP_AMISS_KIND);
	return r;
}

int gp_device_pool_new(struct gp_context *context, struct gp_pool **ret_pool)
{
	int r = -ENOTSUP;

	gp_libraries_look();
	context->can_release_behind = gp_real.cuMemFreeAsync &&
		gp_driver_has(context->device->index, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED);
	gp_backend_setup(context);
	if (gp_state_kind() == GP_KIND_VMM)
		r = mapped_pool_new(context, ret_pool);
	if (r)
		r = first_new(context, gp_min(gp_state_kind(), GP_KIND_SPLIT), 2 * GP_MIB, ret_pool);
	return r;
}
