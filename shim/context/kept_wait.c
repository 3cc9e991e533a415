/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "kept_wait.h"

#include "capture.h"
#include "context.h"
#include "shim/base/slow_path.h"
#include "shim/base/state.h"
#include "shim/driver/driver_table.h"
#include "shim/driver/submit.h"

/* PLACES_MAX: a program has few such places. FOLLOWED_MIN: the waits of a place before the first one is left out. */
enum { PLACES_MAX = 16, FOLLOWED_MIN = 8 };

/* A place that waits. */
struct place {
	_Atomic uintptr_t caller;
	_Atomic unsigned n_followed; /* waits in a row that were followed by an unmap */
};

static struct place places[PLACES_MAX];
static _Atomic uint64_t left_bytes; /* unmapped since the last wait that was made, by threads that had left it out */
static bool is_enabled;

/* The last wait of the thread. Small, since thread-local storage of a preloaded library is scarce. */
static _Thread_local struct {
	uint32_t epoch;  /* of submissions, at the wait */
	uint8_t place;   /* its number, from 1 on; 0: an unmap has followed, or there were too many places */
	bool is_omitted; /* until the thread waits again */
} last;

void gp_kept_wait_start(void)
{
	is_enabled = !gp_state.config.is_unmap_awaited;
}

/* Returns the number of the caller's place, or 0. */
static uint8_t number_of(uintptr_t caller)
{
	for (unsigned i = 0; i < PLACES_MAX; i++) {
		uintptr_t other = 0;

		if (atomic_compare_exchange_strong(&places[i].caller, &other, caller) || other == caller)
			return (uint8_t)(i + 1);
	}
	return 0;
}

static _Atomic unsigned *n_followed(uint8_t place)
{
	return &places[place - 1].n_followed;
}

/* The memory that no wait has covered is bounded like pending blocks. The driver refuses the wait during a capture. */
static bool may_omit(void)
{
	struct gp_context *context = gp_context_current();
	bool may;

	if (!context)
		return false;
	may = !gp_context_is(context, GP_CONTEXT_BROKEN) && gp_capture_is_none() &&
	      !gp_slow_path_is_any(GP_SLOW_PATH_END | GP_SLOW_PATH_BYPASS) &&
	      atomic_load(&left_bytes) < gp_state_pending_max(context->device->total_bytes, &context->device->budget);
	gp_context_put(context);
	return may;
}

bool gp_kept_wait_is_needless(uintptr_t caller)
{
	bool is_second = last.place && last.is_omitted;

	if (gp_likely(!is_enabled) || gp_submission_is_unseen(&gp_submitted))
		return false;
	if (last.place)
		atomic_store(n_followed(last.place), 0);
	last.place = number_of(caller);
	(void)gp_submission_look(&gp_submitted); /* so that the next submission ends the epoch */
	last.epoch = (uint32_t)gp_submission_epoch(&gp_submitted);
	last.is_omitted = last.place && atomic_load(n_followed(last.place)) >= FOLLOWED_MIN && !is_second && may_omit();
	return last.is_omitted;
}

void gp_kept_wait_made(void)
{
	if (gp_unlikely(is_enabled))
		atomic_store(&left_bytes, 0);
}

bool gp_kept_wait_unmapped(size_t bytes)
{
	uint8_t place = last.place;

	if (gp_likely(!is_enabled))
		return false;
	last.place = 0;
	if (place && (uint32_t)gp_submission_epoch(&gp_submitted) != last.epoch)
		atomic_store(n_followed(place), 0);
	else if (place && atomic_load(n_followed(place)) < FOLLOWED_MIN)
		atomic_fetch_add(n_followed(place), 1);
	if (last.is_omitted)
		atomic_fetch_add(&left_bytes, bytes);
	return last.is_omitted;
}

void gp_kept_wait_make_up(void)
{
	if (gp_likely(!last.is_omitted))
		return;
	last.is_omitted = false;
	if (!gp_real.cuCtxSynchronize())
		gp_kept_wait_made();
}
