/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Pinned host memory over the driver. Every device of the process can access it, and the next access may come from
 * the CPU, which a GPU wait does not hold back. So a fence is a record in every live context, and reuse needs all
 * of them to have completed. The driver's free waits for the device, so the pool calls it only while the context is
 * idle. If a record makes the host wait, it is made only in the context that owns the pool, since the driver's free
 * waits for no other context's work.
 */

#include "backend_pinned.h"

#include <errno.h>
#include <stdlib.h>

#include "fence_call.h"
#include "pool_options.h"
#include "registered.h"
#include "shim/base/clock.h"
#include "shim/context/capture.h"
#include "shim/context/context_end.h"
#include "shim/context/driver_call.h"
#include "shim/debug/debug.h"
#include "shim/driver/driver_table.h"
#include "shim/reclaim/reclaim.h"
#include "shim/record/record_backend.h"

/* The record of one context in a slot. */
struct part {
	struct gp_context *context; /* referenced */
	CUevent event;
	bool is_recorded;
};

struct gp_pinned {
	struct gp_context *context; /* the owner; referenced */
	unsigned kind;
	struct gp_pool *pool;
	_Atomic uint64_t n_registrations, registered_bytes;
	struct slot {
		struct part *parts;
		unsigned n, n_room;
	} slots[GP_FENCE_SLOTS];
};

/* Registers prepared memory. If there is none, or it cannot be registered, the driver allocates the memory. */
static CUresult take(struct gp_pinned *pinned, uint64_t bytes, void *prepared, void **ret_ptr)
{
	if (prepared && gp_registered_add(pinned->context, pinned->kind, prepared, bytes)) {
		atomic_fetch_add_explicit(&pinned->n_registrations, 1, memory_order_relaxed);
		atomic_fetch_add_explicit(&pinned->registered_bytes, bytes, memory_order_relaxed);
		*ret_ptr = prepared;
		return CUDA_SUCCESS;
	}
	return pinned->kind == GP_PINNED_ALLOC_HOST ? gp_real.cuMemAllocHost_v2(ret_ptr, bytes)
						    : gp_real.cuMemHostAlloc(ret_ptr, bytes, pinned->kind);
}

static CUresult give_back(struct gp_pinned *pinned, uint64_t addr)
{
	uint64_t bytes;
	CUresult r;

	if (!gp_registered_begins_at(addr))
		return gp_real.cuMemFreeHost((void *)(uintptr_t)addr);
	r = gp_registered_release(addr, &bytes);
	atomic_fetch_sub_explicit(&pinned->registered_bytes, bytes, memory_order_relaxed);
	return r;
}

static int pinned_reserve(void *arg, uint64_t bytes, uint64_t *ret_addr, uint64_t *ret_available)
{
	struct gp_pinned *pinned = arg;
	struct gp_context *context = pinned->context;
	struct gp_driver_scope scope;
	void *ptr = NULL, *prepared = gp_registered_prepare(context, pinned->kind, bytes);
	CUresult r;

	if (!gp_context_enter(context)) {
		gp_registered_discard(prepared, bytes);
		return CUDA_ERROR_CONTEXT_IS_DESTROYED;
	}
	/* A pool of pinned memory grows only inside a call of the program, with the owner current. */
	r = gp_context_is_current(context) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
	if (!r)
		r = gp_driver_enter(&scope, context->handle);
	if (r) {
		gp_registered_discard(prepared, bytes);
	} else {
		r = take(pinned, bytes, prepared, &ptr);
		gp_driver_leave(&scope);
	}
	gp_context_leave(context);
	if (!r) {
		gp_context_make_room(&gp_state.pinned_map, (uint64_t)(uintptr_t)ptr, bytes);
		gp_device_note_growth(NULL);
	}
	*ret_addr = (uint64_t)(uintptr_t)ptr;
	return r == CUDA_ERROR_OUT_OF_MEMORY ? -ENOMEM : r;
}

static int pinned_release(void *arg, uint64_t addr)
{
	struct gp_pinned *pinned = arg;
	struct gp_driver_scope scope;
	CUresult r;
	int lost_to;

	gp_debug_leave(addr, 0, true);
	if (!gp_driver_takes_back(pinned->context, &lost_to))
		return lost_to; /* the program's call may return this error */
	r = gp_driver_enter(&scope, pinned->context->handle);
	if (!r) {
		r = give_back(pinned, addr);
		gp_driver_leave(&scope);
	}
	gp_context_leave(pinned->context);
	return gp_driver_released(pinned->context, r);
}

static bool pinned_can_release_behind(void *arg)
{
	return false;
}

static int pinned_release_begin(void *arg, uint64_t addr, int slot)
{
	return -ENOTSUP;
}

static int pinned_release_poll(void *arg)
{
	return 0;
}

static int pinned_release_drain(void *arg, uint64_t max_ns)
{
	return 0;
}

/* Returns the slot's part for a context, and adds it if needed. NULL without host memory. */
static struct part *part_of(struct slot *slot, struct gp_context *context)
{
	for (unsigned i = 0; i < slot->n; i++)
		if (slot->parts[i].context == context)
			return &slot->parts[i];
	if (slot->n == slot->n_room) {
		unsigned room = slot->n_room ? slot->n_room * 2 : 1;
		struct part *parts = realloc(slot->parts, room * sizeof(*parts));

		if (!parts)
			return NULL;
		slot->parts = parts;
		slot->n_room = room;
	}
	gp_context_ref(context);
	slot->parts[slot->n] = (struct part){.context = context};
	return &slot->parts[slot->n++];
}

/* Removes the parts of dead contexts, whose events ended with them. */
static void prune(struct slot *slot)
{
	for (unsigned i = slot->n; i-- > 0;) {
		slot->parts[i].is_recorded = false;
		if (!gp_context_is(slot->parts[i].context, GP_CONTEXT_DEAD))
			continue;
		gp_context_unref(slot->parts[i].context);
		slot->parts[i] = slot->parts[--slot->n];
	}
}

struct recording {
	struct slot *slot;
	const struct gp_context *owner;
	const struct gp_context *due_in;  /* the context that the program's own free waits for, or NULL */
	const struct gp_context *only_in; /* the only context to record in, if a record makes the host wait; or NULL */
	int r;
};

/* True for a broken context other than the owner: its work has ended, and the program gets only the owner's error. */
static bool is_over_in(const struct gp_context *context, const struct gp_context *owner)
{
	return gp_unlikely(gp_context_is(context, GP_CONTEXT_BROKEN)) && context != owner;
}

static void record_in(void *arg, struct gp_context *context)
{
	struct recording *recording = arg;
	struct part *part;
	int entered = 0;
	CUresult r;

	if (is_over_in(context, recording->owner))
		return;
	if (!recording->r && (!recording->only_in || context == recording->only_in))
		entered = gp_context_try_enter(context);
	if (entered < 0)
		recording->r = -EBUSY;
	if (entered <= 0)
		return;
	part = part_of(recording->slot, context);
	r = part ? gp_backend_event(context, &part->event) : CUDA_SUCCESS;
	if (part && !r)
		r = gp_backend_record(context, part->event, context == recording->due_in);
	gp_context_leave(context);
	recording->r = part ? gp_driver_fence_result(context, r) : -EBUSY;
	if (is_over_in(context, recording->owner))
		recording->r = 0;
	if (part && !r)
		part->is_recorded = true;
}

static int pinned_fence_record(void *arg, int slot, bool is_at_free, uint64_t *ret_epoch)
{
	struct gp_pinned *pinned = arg;
	struct recording recording = {
		.slot = &pinned->slots[slot],
		.owner = pinned->context,
		.due_in = is_at_free ? pinned->context : NULL,
		.only_in = gp_backend_record_waits(NULL) ? pinned->context : NULL,
	};

	if (!gp_capture_is_none()) {
		gp_capture_refused();
		return -EBUSY;
	}
	*ret_epoch = gp_submission_look(&gp_submitted);
	prune(recording.slot);
	gp_context_each(record_in, &recording);
	return recording.r;
}

static int query_part(struct part *part, bool is_capturing)
{
	int entered = part->is_recorded ? gp_context_try_enter(part->context) : 0;
	struct gp_driver_scope scope;
	CUresult r = CUDA_SUCCESS;

	/* A context that has ended has no work left. */
	if (entered <= 0)
		return entered < 0 ? -EAGAIN : 0;
	if (gp_unlikely(is_capturing)) {
		r = gp_driver_enter(&scope, part->context->handle);
		if (!r && !scope.is_relaxed)
			r = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	}
	if (!r)
		r = gp_real.cuEventQuery(part->event);
	if (gp_unlikely(is_capturing))
		gp_driver_leave(&scope);
	gp_context_leave(part->context);
	return gp_driver_fence_result(part->context, r);
}

static int pinned_fence_query(void *arg, int slot)
{
	struct gp_pinned *pinned = arg;
	struct slot *s = &pinned->slots[slot];
	bool is_capturing = !gp_capture_is_none();
	int r = 0;

	if (is_capturing)
		gp_capture_refused();
	for (unsigned i = 0; i < s->n && !r; i++) {
		r = query_part(&s->parts[i], is_capturing);
		if (is_over_in(s->parts[i].context, pinned->context))
			r = 0;
	}
	return r;
}

/*
 * True if the fence waits only for work that the driver's own free would not have waited for: that free waits for the
 * owner's work alone, and this has finished.
 */
static bool pinned_fence_is_beyond(void *arg, int slot)
{
	struct gp_pinned *pinned = arg;
	struct slot *s = &pinned->slots[slot];

	for (unsigned i = 0; i < s->n; i++)
		if (s->parts[i].context == pinned->context)
			return query_part(&s->parts[i], !gp_capture_is_none()) != -EAGAIN;
	return true;
}

static int pinned_fence_gpu_wait(void *arg, int slot)
{
	return -EAGAIN; /* a GPU wait does not hold back the CPU */
}

static bool pinned_trim_driver(void *arg)
{
	return false;
}

static uint64_t pinned_available(void *arg)
{
	return UINT64_MAX;
}

static void pinned_count(void *arg, struct gp_stats *stats)
{
	struct gp_pinned *pinned = arg;

	stats->registrations = atomic_load_explicit(&pinned->n_registrations, memory_order_relaxed);
	stats->registered_bytes = atomic_load_explicit(&pinned->registered_bytes, memory_order_relaxed);
}

static void pinned_detach(void *arg)
{
	struct gp_pinned *pinned = arg;

	for (int i = 0; i < GP_FENCE_SLOTS; i++) {
		for (unsigned k = 0; k < pinned->slots[i].n; k++)
			gp_context_unref(pinned->slots[i].parts[k].context);
		free(pinned->slots[i].parts);
	}
	gp_context_unref(pinned->context);
	free(pinned);
}

static uint64_t pinned_ask_contexts(void *arg, uint64_t bytes)
{
	const struct gp_pinned *pinned = arg;

	return gp_reclaim_from_pinned(pinned->pool, bytes);
}

static void pinned_fence_failed(void *arg)
{
	gp_driver_log_errors();
}

static const struct gp_backend_ops pinned_ops = {
	.reserve = pinned_reserve,
	.release = pinned_release,
	.can_release_behind = pinned_can_release_behind,
	.release_begin = pinned_release_begin,
	.release_poll = pinned_release_poll,
	.release_drain = pinned_release_drain,
	.fence_record = pinned_fence_record,
	.fence_record_waits = gp_backend_record_waits,
	.fence_query = pinned_fence_query,
	.fence_is_beyond = pinned_fence_is_beyond,
	.fence_gpu_wait = pinned_fence_gpu_wait,
	.fence_failed = pinned_fence_failed,
	.pause = gp_clock_pause,
	.trim_driver = pinned_trim_driver,
	.ask_contexts = pinned_ask_contexts,
	.available = pinned_available,
	.count = pinned_count,
	.now_ns = gp_clock_now_ns,
	.detach = pinned_detach,
};

static struct gp_pool *pinned_new(struct gp_context *context, unsigned kind)
{
	struct gp_pinned *pinned = calloc(1, sizeof(*pinned));
	struct gp_pool_options options = {
		.kind = gp_state_kind() == GP_KIND_NONE ? GP_KIND_NONE : GP_KIND_BINNED,
		.backend = {.ops = &pinned_ops, .arg = pinned, .work = gp_backend_submissions(gp_state_kind())},
		.map = &gp_state.pinned_map,
		.budget = &gp_state.pinned_budget,
		.granule = 4 * GP_KIB,
		.completion_only = true,
		.owner = context,
	};

	if (!pinned)
		return NULL;
	pinned->context = context;
	pinned->kind = kind;
	gp_backend_pool_options(&options, gp_state_machine_bytes(), &gp_state.pinned_budget);
	gp_record_pool(&options, context->device->index, 1 + kind);
	if (gp_pool_new(&options, &pinned->pool)) {
		gp_record_no_pool(&options);
		free(pinned);
		return NULL;
	}
	gp_context_ref(context);
	return pinned->pool;
}

struct gp_pool *gp_pinned_get(struct gp_context *context, unsigned kind)
{
	struct gp_pool *pool;

	gp_mutex_lock(&context->pinned_lock);
	/* The thread that ends a context marks it dead before it looks for pools here. */
	if (!context->pinned[kind] && !gp_context_is(context, GP_CONTEXT_DEAD))
		context->pinned[kind] = pinned_new(context, kind);
	pool = context->pinned[kind];
	gp_mutex_unlock(&context->pinned_lock);
	return pool;
}
