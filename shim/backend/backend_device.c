/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Device memory over the driver. Rules for when each call may be made:
 *
 *   - No fence is recorded and no GPU wait is made while a stream captures (capture.h): either would invalidate the
 *     capture, in every mode. A query in the relaxed mode does not (measured).
 *   - Memory is reserved in the relaxed capture mode, in which the driver gives it while any stream captures.
 *   - Memory goes back in the relaxed capture mode, on a private stream (measured: harmless to captures, never
 *     waits). Until the first release on that stream, a free of the program uses the driver's own free while the
 *     context is idle (pool/segment.c).
 *
 * Drivers before CUDA 12.5 have no cuCtxRecordEvent. There the host waits for the context instead of the record, as
 * the program's own cudaFree would have, and every fence is complete at once. Meanwhile only other records have to
 * wait.
 */

#include "backend_device.h"

#include <errno.h>

#include "async.h"
#include "backend_mapping.h"
#include "mapping_setup.h"
#include "backend_sleep.h"
#include "backend_spill.h"
#include "backend_supply.h"
#include "deep.h"
#include "fence_call.h"
#include "first_chunk.h"
#include "pool_options.h"
#include "spill.h"
#include "shim/base/clock.h"
#include "shim/context/capture.h"
#include "shim/context/context_end.h"
#include "shim/context/driver_call.h"
#include "shim/context/kept.h"
#include "shim/context/libraries.h"
#include "shim/debug/debug.h"
#include "shim/driver/driver_table.h"
#include "shim/driver/submit.h"
#include "shim/reclaim/neighbours.h"
#include "shim/reclaim/reclaim.h"
#include "shim/reclaim/rest.h"
#include "shim/record/record.h"
#include "shim/record/record_backend.h"

/* Kept mappings go back before a pool stops caching for want of the reserve. Returns what the driver has left then. */
static uint64_t trim_kept_for_reserve(struct gp_context *context, uint64_t available)
{
	return gp_kept_note_available(context->device, available) ? gp_device_available(context) : available;
}

static int device_reserve(void *arg, uint64_t bytes, uint64_t *ret_addr, uint64_t *ret_available)
{
	struct gp_context *context = arg;
	CUdeviceptr ptr = 0;
	CUresult r;

	gp_libraries_look();
	if (!gp_context_enter(context))
		return CUDA_ERROR_CONTEXT_IS_DESTROYED;
	if (gp_context_backend_is(context, GP_CONFIG_BACKEND_MANAGED))
		ret_available = NULL; /* GPUPOOL_RESERVE has no effect then, see device_available */
	r = gp_backend_take(context, &ptr, bytes, ret_available);
	gp_context_leave(context);
	if (gp_unlikely(atomic_load_explicit(&context->downgraded, memory_order_relaxed)))
		gp_backend_log_downgrades(context);
	if (!r) {
		gp_context_make_room(&gp_state.device_map, ptr, bytes);
		gp_device_note_growth(context->device);
		if (ret_available)
			*ret_available = trim_kept_for_reserve(context, *ret_available);
	}
	*ret_addr = ptr;
	/*
	 * An error that is due to a capture is passed on unchanged: the program gets the code that its own call
	 * would have returned.
	 */
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
		return lost_to; /* the program's call may return this error */
	r = gp_driver_enter(&scope, context->handle);
	if (!r) {
		r = gp_context_backend_is(context, GP_CONFIG_BACKEND_ASYNC) ? gp_async_release(context, addr)
									    : gp_real.cuMemFree_v2(addr);
		gp_driver_leave(&scope);
	}
	gp_context_leave(context);
	return gp_driver_released(context, r);
}

/* Returns the private stream, after making it wait for the fence. */
static CUresult release_stream(struct gp_context *context, int slot, CUstream *ret_stream)
{
	CUresult r = gp_driver_stream(&context->release_stream, ret_stream);

	if (!r && slot != GP_NO_SLOT && context->events[slot])
		r = gp_real.cuStreamWaitEvent(*ret_stream, context->events[slot], 0);
	return r;
}

/* Returns the context's sticky error, if there is one. Otherwise -ENOTSUP: the caller may use the free that waits. */
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

/* The driver frees managed memory only by the call that waits for the device. */
static bool device_can_release_behind(void *arg)
{
	struct gp_context *context = arg;

	return context->can_release_behind && !gp_context_backend_is(context, GP_CONFIG_BACKEND_MANAGED);
}

/*
 * The first cuMemFreeAsync of a process takes the driver 7 to 13 ms (measured). No call that is faster prepares the
 * driver for it. Where memory comes from a driver pool, making that pool has prepared it.
 */
static bool device_is_first_release_slow(void *arg)
{
	return gp_context_backend_is(arg, GP_CONFIG_BACKEND_DEVICE) && device_can_release_behind(arg);
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
		/* The driver takes freed memory back only at a synchronisation. The idle stream does not wait. */
		if (!r)
			r = gp_real.cuStreamSynchronize(stream);
		gp_driver_leave(&scope);
	}
	gp_context_leave(context);
	return r == CUDA_ERROR_NOT_READY ? -EAGAIN : gp_driver_result(context, r);
}

static int device_release_drain(void *arg, uint64_t max_ns)
{
	uint64_t start_ns = gp_clock_now_ns(NULL);
	int r;

	for (unsigned attempt = 0; (r = device_release_poll(arg)) == -EAGAIN; attempt++) {
		if (max_ns != UINT64_MAX && gp_clock_now_ns(NULL) - start_ns >= max_ns)
			break;
		gp_clock_pause(NULL, attempt);
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

static CUresult gpu_wait(struct gp_context *context, int slot)
{
	return gp_backend_record_waits(NULL) ? CUDA_SUCCESS : gp_backend_gpu_wait(context, context->events[slot]);
}

/*
 * Returns 0 if the context is known to be alive. It stays alive: its end waits for the fence's lock, held here. A
 * thread that ends while the process is deep asleep must not wait here for the driver.
 */
static int fence_refusal(const struct gp_context *context)
{
	if (gp_unlikely(gp_deep_is()))
		return -EBUSY;
	if (gp_unlikely(gp_context_is(context, GP_CONTEXT_DEAD)))
		return CUDA_ERROR_CONTEXT_IS_DESTROYED;
	return gp_unlikely(gp_context_is(context, GP_CONTEXT_ENDING)) ? -EAGAIN : 0;
}

/*
 * Makes a fence call if no stream captures and the context is alive. Both are checked under the fence's lock. A
 * thread that begins a capture or ends the context waits for that lock (gp_pool_quiesce), so no other lock is
 * needed.
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
	*ret_epoch = gp_submission_look(&gp_submitted);
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

static int device_fence_gpu_wait(void *arg, int slot)
{
	return fence_call(arg, slot, gpu_wait);
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
	bool is_any = gp_kept_trim(context->device->index, UINT64_MAX) != 0;

	if (!gp_real.cuMemPoolTrimTo || !gp_context_enter(context))
		return is_any;
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
	uint64_t available = UINT64_MAX;

	if (!gp_context_enter(context))
		return available;
	if (!gp_driver_enter(&scope, context->handle)) {
		available = gp_backend_ask_available();
		gp_driver_leave(&scope);
	}
	gp_context_leave(context);
	return available;
}

/* With managed memory GPUPOOL_RESERVE has no effect: the driver moves pages off the device when it needs the room. */
static uint64_t device_available(void *arg)
{
	struct gp_context *context = arg;

	if (gp_context_backend_is(context, GP_CONFIG_BACKEND_MANAGED))
		return UINT64_MAX;
	return trim_kept_for_reserve(context, gp_device_available(context));
}

static void device_detach(void *arg)
{
	gp_context_unref(arg);
}

static uint64_t device_ask_contexts(void *arg, uint64_t bytes)
{
	return gp_reclaim_from_contexts(arg, bytes);
}

static uint64_t device_ask_processes(void *arg, uint64_t bytes)
{
	return gp_reclaim_from_processes(arg, bytes);
}

static uint64_t device_ask_group(void *arg, uint64_t bytes)
{
	return gp_reclaim_from_group(arg, bytes);
}

static uint64_t device_wait_begin(void *arg, uint64_t bytes, struct gp_wait *ret_wait)
{
	return gp_neighbours_wait_begin(arg, bytes, ret_wait, gp_device_available);
}

static uint64_t device_sleepers_begin(void *arg, uint64_t bytes, struct gp_wait *ret_wait)
{
	return gp_rest_wait_begin(arg, bytes, ret_wait, gp_device_available);
}

static bool device_sleepers_ask(void *arg, uint64_t bytes)
{
	return gp_rest_ask(arg, bytes, gp_device_available);
}

static enum gp_wait_news device_wait_pause(void *arg, struct gp_wait *wait)
{
	if (wait->sleepers)
		return gp_rest_wait_pause(arg, wait, gp_device_available);
	return gp_neighbours_wait_pause(arg, wait, gp_device_available);
}

static void device_wait_end(void *arg, struct gp_wait *wait, uint64_t waited_ns, bool is_served)
{
	if (wait->sleepers)
		gp_rest_wait_end(wait);
	else
		gp_neighbours_wait_end(wait, waited_ns, is_served);
}

static bool device_is_wanted(void *arg)
{
	return gp_reclaim_is_wanted(arg);
}

static uint64_t device_ask_siblings(void *arg, uint64_t bytes, bool may_wait)
{
	return gp_reclaim_from_siblings(arg, bytes, may_wait);
}

static void device_fence_failed(void *arg)
{
	gp_driver_log_errors();
}

static const struct gp_backend_ops device_ops = {
	.mapping = &gp_mapping_backend,
	.sleep = &gp_sleep_backend,
	.spill = &gp_spill_backend,
	.reserve = device_reserve,
	.release = device_release,
	.can_release_behind = device_can_release_behind,
	.is_first_release_slow = device_is_first_release_slow,
	.release_begin = device_release_begin,
	.release_poll = device_release_poll,
	.release_drain = device_release_drain,
	.fence_record = device_fence_record,
	.fence_record_waits = gp_backend_record_waits,
	.fence_query = device_fence_query,
	.fence_gpu_wait = device_fence_gpu_wait,
	.fence_failed = device_fence_failed,
	.pause = gp_clock_pause,
	.trim_driver = device_trim_driver,
	.ask_contexts = device_ask_contexts,
	.ask_processes = device_ask_processes,
	.ask_group = device_ask_group,
	.sleepers_begin = device_sleepers_begin,
	.sleepers_ask = device_sleepers_ask,
	.wait_begin = device_wait_begin,
	.wait_pause = device_wait_pause,
	.wait_end = device_wait_end,
	.is_wanted = device_is_wanted,
	.ask_siblings = device_ask_siblings,
	.available = device_available,
	.now_ns = gp_clock_now_ns,
	.detach = device_detach,
};

/*
 * The host may be the next to touch managed memory, so reuse needs completion. There can be more of it than the
 * device has.
 */
static void set_for_managed(struct gp_pool_options *options)
{
	options->completion_only |= gp_state.config.reuse != GP_CONFIG_REUSE_ORDERED;
	options->capacity_bytes = UINT64_MAX;
}

/* Creates a pool. The first pool of a context is context->pool, and later ones are its siblings. */
static int pool_new(struct gp_context *context, enum gp_kind kind, uint64_t granule, struct gp_pool **ret_pool)
{
	struct gp_device *device = context->device;
	int r;
	struct gp_pool_options options = {
		.kind = kind,
		.backend = {.ops = &device_ops, .arg = context, .work = gp_backend_submissions(kind)},
		.map = &gp_state.device_map,
		.budget = &device->budget,
		.accounts = &device->accounts,
		.survivor_bytes = &device->survivor_bytes,
		.granule = granule,
		.page_bytes = gp_min(gp_state_page_bytes(), granule),
		.reserve_bytes = gp_state.config.reserve_bytes,
		.sibling = context->pool,
		.owner = context,
	};

	options.completion_only = atomic_load(&gp_state.needs_completion);
	gp_backend_pool_options(&options, device->total_bytes, &device->budget);
	options.spills &= !gp_spill_why_not(context->regions.kind);
	if (gp_context_backend_is(context, GP_CONFIG_BACKEND_MANAGED))
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

/* Creates the first pool of a context. Its siblings will have the same kind and granule. */
static int first_new(struct gp_context *context, enum gp_kind kind, uint64_t granule, struct gp_pool **ret_pool)
{
	context->regions.kind = kind;
	context->regions.granule = granule;
	return pool_new(context, kind, granule, ret_pool);
}

static const char why_cannot_map[] = "the driver cannot map memory on the device";
static const char why_cannot_share[] = "the driver cannot share mapped memory with other processes";

/*
 * Returns why GPUPOOL_POOL=auto is split in this process, or NULL: what works under split must not fail because of a
 * choice that the user did not make.
 */
static const char *why_not_mapped_here(void)
{
	if (!gp_state.config.has_socket)
		return "GPUPOOL_SOCKET is off, and vmm shares memory with other processes by the control socket";
	if (gp_libraries_needing_whole())
		return "a library in the process registers memory with devices (MPI, UCX or libfabric)";
	return NULL;
}

/* The driver copies mapped memory only on streams of devices that can have access to it (hook_peer.h). */
static bool can_be_reached(CUdevice device)
{
	int n = 0, can = 1;

	if (!gp_real.cuDeviceGetCount || gp_real.cuDeviceGetCount(&n))
		return false;
	for (CUdevice peer = 0; can && peer < n; peer++)
		if (peer != device &&
			(!gp_real.cuDeviceCanAccessPeer || gp_real.cuDeviceCanAccessPeer(&can, peer, device)))
			can = 0;
	return can;
}

/* Returns why the context cannot have a pool of the kind vmm as far as the driver says, or NULL and the granule. */
static const char *why_not_mapped(struct gp_context *context, uint64_t *ret_granule)
{
	bool is_auto = gp_state.config.pool == GP_CONFIG_POOL_AUTO;
	const char *why_not = is_auto ? why_not_mapped_here() : NULL;

	if (!why_not && gp_mapping_granule(context, ret_granule))
		return why_cannot_map;
	if (why_not)
		return why_not;
	context->is_shareable = gp_mapping_says_shareable(context);
	if (is_auto && (!context->is_shareable || atomic_load(&context->device->export_error)))
		return why_cannot_share;
	if (is_auto && !can_be_reached(context->device->index))
		return "a device of the process cannot have access to the memory of this one";
	return NULL;
}

/* Ends a new pool that nothing has used. */
static void pool_undo(struct gp_pool *pool)
{
	gp_record(pool, DROP, 0);
	gp_pool_drop(pool);
	gp_pool_unmap(pool);
	gp_pool_put(pool);
}

/*
 * Creates a pool of the kind vmm. Returns why that is not possible, or NULL; the caller falls back to split then. With
 * GPUPOOL_POOL=auto memory must be exportable. An export is not tried: where the driver wrongly claims that memory is
 * exportable, it refuses to create such memory (mapping_setup.c).
 */
static const char *mapped_pool_new(struct gp_context *context, struct gp_pool **ret_pool)
{
	struct gp_pool *pool = NULL;
	uint64_t granule;
	const char *why_not = why_not_mapped(context, &granule);

	if (why_not)
		return why_not;
	if (first_new(context, GP_KIND_VMM, granule, &pool))
		return "the driver has no addresses left";
	if (gp_mapping_try(context, pool))
		why_not = why_cannot_map;
	else if (gp_state.config.pool == GP_CONFIG_POOL_AUTO && !context->is_shareable)
		why_not = why_cannot_share;
	if (why_not) {
		gp_first_chunk_release();
		pool_undo(pool);
		return why_not;
	}
	*ret_pool = pool;
	return NULL;
}

/* The program cannot share this memory with other processes, so nor does it have to be exportable. */
static int streamed_new(struct gp_context *context, struct gp_pool **ret_pool)
{
	struct gp_pool *pool;
	uint64_t granule;
	int r = gp_mapping_granule(context, &granule);

	if (!r)
		r = pool_new(context, GP_KIND_VMM, granule, &pool);
	if (r)
		return r == -ENOMEM ? r : -ENOTSUP;
	/* A trial changes the features of the context, which chunks of later pools are made with meanwhile. */
	if (!context->can_map && gp_mapping_try(context, pool)) {
		pool_undo(pool);
		return -ENOTSUP;
	}
	context->can_map = true;
	*ret_pool = pool;
	return 0;
}

static int sibling_new(struct gp_context *context, bool is_streamed, struct gp_pool **ret_pool)
{
	if (is_streamed)
		return streamed_new(context, ret_pool);
	return pool_new(context, context->regions.kind, context->regions.granule, ret_pool);
}

static int device_pool_new(struct gp_context *context, struct gp_pool **ret_pool)
{
	enum gp_kind kind = gp_state_kind();
	bool wants_mapped = gp_state.config.pool == GP_CONFIG_POOL_VMM || gp_state.config.pool == GP_CONFIG_POOL_AUTO;
	const char *why_not = NULL;

	gp_libraries_look();
	context->can_release_behind = gp_real.cuMemFreeAsync &&
				      gp_driver_has(context->device->index, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED);
	gp_backend_setup(context);
	if (kind == GP_KIND_VMM)
		why_not = mapped_pool_new(context, ret_pool);
	else if (wants_mapped)
		why_not = "GPUPOOL_BACKEND is not device";
	if (gp_state.config.pool == GP_CONFIG_POOL_AUTO || (kind == GP_KIND_VMM && why_not))
		atomic_fetch_or(&context->downgraded, GP_DOWNGRADED_KIND);
	kind = why_not ? GP_KIND_SPLIT : kind;
	atomic_store(&context->device->why_kind, why_not);
	atomic_store(&context->device->kind, kind);
	if (gp_spill_why_not(kind))
		atomic_fetch_or(&context->downgraded, GP_DOWNGRADED_SPILL);
	atomic_store(
		&context->regions.are_streams_apart, kind != GP_KIND_VMM && kind != GP_KIND_NONE &&
							     gp_context_backend_is(context, GP_CONFIG_BACKEND_DEVICE));
	return kind == GP_KIND_VMM ? 0 : first_new(context, kind, 2 * GP_MIB, ret_pool);
}

void gp_backend_start(void)
{
	static const struct gp_context_backend backend = {
		.pool_new = device_pool_new,
		.sibling_new = sibling_new,
		.free_before_end = gp_async_end,
	};

	gp_context_set_backend(&backend);
}
