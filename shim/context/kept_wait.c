/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "kept_wait.h"

#include <errno.h>

#include "capture.h"
#include "context.h"
#include "shim/base/clock.h"
#include "shim/base/slow_path.h"
#include "shim/base/state.h"
#include "shim/driver/driver_table.h"
#include "shim/driver/submit.h"
#include "shim/trace/module.h"

/* PLACES_MAX: a program has few such places. FOLLOWED_MIN: the waits of a place before the first one is omitted. */
enum { PLACES_MAX = 16, FOLLOWED_MIN = 8 };

/* A place that waits. */
struct place {
	_Atomic uintptr_t caller;
	_Atomic unsigned n_followed; /* waits in a row that were followed by an unmap */
};

static struct place places[PLACES_MAX];
static bool is_enabled;

/* The waits that were omitted, and how many of the first ones have no running work. */
static _Atomic uint64_t n_omitted, n_settled;

/* The last wait of the thread. Small, since thread-local storage of a preloaded library is scarce. */
static _Thread_local struct {
	uint32_t epoch; /* of submissions, at the wait */
	uint8_t place;  /* its number, from 1 on; 0: an unmap has followed, or there were too many places */
	bool is_omitted;
} last;

void gp_kept_wait_start(void)
{
	is_enabled = !gp_state.config.is_unmap_awaited;
}

/* Puts the caller in place of another one. */
static bool take_place(struct place *place, uintptr_t other, uintptr_t caller)
{
	return atomic_compare_exchange_strong(&place->caller, &other, caller) || other == caller;
}

/* Returns the number of the caller's place, or 0. A place is given up if its last wait was not for an unmap. */
static uint8_t number_of(uintptr_t caller)
{
	for (unsigned i = 0; i < PLACES_MAX; i++)
		if (take_place(&places[i], 0, caller))
			return (uint8_t)(i + 1);
	for (unsigned i = 0; i < PLACES_MAX; i++)
		if (!atomic_load(&places[i].n_followed) &&
			take_place(&places[i], atomic_load(&places[i].caller), caller))
			return (uint8_t)(i + 1);
	return 0;
}

static _Atomic unsigned *n_followed(uint8_t place)
{
	return &places[place - 1].n_followed;
}

/* A runtime has one place for all waits of the program. */
static bool is_known(uint8_t place)
{
	return place && atomic_load(n_followed(place)) >= FOLLOWED_MIN && !gp_module_is_cuda(gp_module_now());
}

/* Remembers the work of the context, for which the program does not wait. */
static bool remember(struct gp_context *context)
{
	uint64_t seq, before = atomic_load(&context->omitted_seq);

	if (gp_pool_grace_begin(context->pool, &seq))
		return false;
	while (before < seq + 1 && !atomic_compare_exchange_weak(&context->omitted_seq, &before, seq + 1))
		;
	atomic_fetch_add(&n_omitted, 1);
	return true;
}

/* The memory that no wait has covered is bounded like pending blocks. The driver refuses the wait during a capture. */
static bool try_omit(void)
{
	struct gp_context *context = gp_context_current();
	struct gp_device *device;
	bool is_omitted;

	if (!context)
		return false;
	device = context->device;
	is_omitted = !gp_context_is(context, GP_CONTEXT_BROKEN) && gp_capture_is_none() &&
		     !gp_slow_path_is_any(GP_SLOW_PATH_END | GP_SLOW_PATH_BYPASS) &&
		     atomic_load(&device->omitted_bytes) < gp_state_pending_max(device->total_bytes, &device->budget) &&
		     remember(context);
	gp_context_put(context);
	return is_omitted;
}

bool gp_kept_wait_omit(uintptr_t caller)
{
	bool is_second = last.place && last.is_omitted;

	if (gp_likely(!is_enabled) || gp_submission_is_unseen(&gp_submitted))
		return false;
	if (last.place)
		atomic_store(n_followed(last.place), 0);
	/* The wait before was not for an unmap, and may have been in another context. */
	if (is_second)
		(void)gp_kept_wait_settle(true);
	last.place = number_of(caller);
	(void)gp_submission_look(&gp_submitted); /* so that the next submission ends the epoch */
	last.epoch = (uint32_t)gp_submission_epoch(&gp_submitted);
	last.is_omitted = is_known(last.place) && !is_second && try_omit();
	return last.is_omitted;
}

void gp_kept_wait_made(void)
{
	struct gp_context *context;

	if (gp_likely(!is_enabled))
		return;
	context = gp_context_current();
	if (context)
		atomic_store(&context->device->omitted_bytes, 0);
	gp_context_put(context);
}

bool gp_kept_wait_unmapped(struct gp_device *device, size_t bytes)
{
	uint8_t place = last.place;

	if (gp_likely(!is_enabled))
		return false;
	last.place = 0;
	if (place && (uint32_t)gp_submission_epoch(&gp_submitted) != last.epoch)
		atomic_store(n_followed(place), 0);
	else if (place && atomic_load(n_followed(place)) < FOLLOWED_MIN)
		atomic_fetch_add(n_followed(place), 1);
	if (atomic_load(&n_settled) >= atomic_load(&n_omitted))
		return false;
	atomic_fetch_add(&device->omitted_bytes, bytes);
	return true;
}

struct ask {
	bool is_running, is_refused;
};

static void ask_context(void *arg, struct gp_context *context)
{
	uint64_t seq = atomic_load(&context->omitted_seq);
	struct ask *ask = arg;
	int r;

	if (!seq || gp_context_is(context, GP_CONTEXT_BROKEN))
		return;
	r = gp_pool_grace_ask(context->pool, seq - 1);
	ask->is_running |= r != 0;
	ask->is_refused |= r == -EPERM;
}

bool gp_kept_wait_settle(bool may_wait)
{
	uint64_t n = atomic_load(&n_omitted), before;

	for (unsigned attempt = 0; (before = atomic_load(&n_settled)) < n; attempt++) {
		struct ask ask = {0};

		/* The driver's contexts have ended, and all work with them. */
		if (gp_slow_path_is_any(GP_SLOW_PATH_BYPASS))
			return true;
		gp_context_each(ask_context, &ask);
		/* A context leaves the table before the driver has waited for its work. */
		if (!ask.is_running && !atomic_load(&gp_contexts_ending)) {
			(void)atomic_compare_exchange_strong(&n_settled, &before, n);
			continue;
		}
		if (!may_wait || ask.is_refused)
			return false;
		gp_clock_pause(NULL, attempt);
	}
	return true;
}
