/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "spill.h"

#include <errno.h>
#include <inttypes.h>

#include "backend_device.h"
#include "backend_spill.h"
#include "pool/pool_control.h"
#include "pool/pool_query.h"
#include "pool/vmm/spill.h"
#include "shim/base/clock.h"
#include "shim/base/fork.h"
#include "shim/base/log.h"
#include "shim/base/memory_left.h"
#include "shim/base/own_thread.h"
#include "shim/base/slow_path.h"
#include "shim/base/state.h"
#include "shim/debug/debug.h"
#include "shim/driver/submit.h"
#include "shim/reclaim/reclaim.h"
#include "shim/record/record.h"
#include "sleep.h"

#define MS UINT64_C(1000000)
#define S  (1000 * MS)

/*
 * An allocation waits this long for the GPU. After it has waited without success, other allocations hardly wait for a
 * while.
 */
#define OUT_WAIT_NS       (1 * S)
#define OUT_WAIT_AGAIN_NS (10 * MS)
#define OUT_AGAIN_NS      (10 * S)

/* Memory that comes back makes the program wait this long, and moves in parts of this size. */
#define IN_WAIT_NS  (50 * MS)
#define IN_PART     (1 * GP_GIB)
#define IN_WAIT_ASK (1 * S) /* for a call that cannot go on without it */

/* There must have been room for this long. It doubles when memory has to go again soon after it came back. */
#define CALM_NS     (1 * S)
#define CALM_MAX_NS (64 * S)
#define SOON        8 /* of these times */

#define LOOK_NS (200 * MS)

/* This part of the device must stay free. */
enum { ROOM_SHARE = 64 };

static _Atomic unsigned n_seeking; /* allocations that are short: nothing comes back meanwhile */
static _Atomic bool is_watched;    /* the thread that brings memory back runs */
static _Atomic bool has_begun;     /* the log has said that memory went to the host */
static _Atomic uint64_t since_ns, out_bytes, back_bytes, moving_ns, n_refusals;
static _Atomic uint64_t went_ns, came_ns, refused_ns; /* when memory last went, came back, or could not go */
static _Atomic uint64_t calm_ns = CALM_NS;

static uint64_t now(void)
{
	return gp_clock_now_ns(NULL);
}

/* An order to move memory of several pools. */
struct order {
	uint64_t bytes, least, most; /* out: as make_room, and the most that may go; in: the most that may come */
	CUdeviceptr block;           /* in: only this block; or 0 */
	struct gp_context *context;  /* out */
	uint64_t moved_bytes;
	int error;
};

static void move_out(void *arg, struct gp_pool *const *pools, unsigned n)
{
	struct order *order = arg;
	uint64_t available = gp_device_available(order->context);
	uint64_t left = gp_budget_left_of_all(&order->context->device->budget), have = gp_min(available, left);
	uint64_t missing = order->bytes - gp_min(have, order->bytes);

	/* A limit that was lowered may have been exceeded before. */
	if (!left)
		missing += gp_budget_over(&order->context->device->budget);
	order->moved_bytes = gp_spill_out(pools, n, gp_max(missing, order->least), order->most, &order->error);
}

static void move_in(void *arg, struct gp_pool *const *pools, unsigned n)
{
	struct order *order = arg;

	if (!order->block) {
		order->moved_bytes = gp_spill_in(pools, n, order->most, &order->error);
		return;
	}
	for (unsigned i = 0; i < n && !order->error; i++)
		order->error = gp_spill_in_block(pools[i], order->block);
}

/* Moves, with the gate closed. Returns false with the reason if that could not begin. */
static bool run(struct order *order, void (*fn)(void *arg, struct gp_pool *const *pools, unsigned n), uint64_t wait_ns,
	struct gp_sleep_result *result)
{
	uint64_t start_ns = now();
	bool is_done = gp_sleep_quietly(wait_ns, fn, order, result);

	atomic_fetch_add(&moving_ns, now() - start_ns);
	return is_done;
}

static void *watch(void *unused);

/* Without a thread, memory comes back when the program gives its cache back (gp_spill_bring_back). */
static void start_watching(void)
{
	if (!atomic_exchange(&is_watched, true) && gp_own_thread_start(watch, NULL, GP_STACK_SMALL))
		atomic_store(&is_watched, false);
}

static void note_out(uint64_t bytes)
{
	uint64_t calm = atomic_load(&calm_ns), came = atomic_load(&came_ns), time = now();

	atomic_fetch_add(&out_bytes, bytes);
	atomic_store(&went_ns, time);
	if (came && time - came < SOON * calm)
		atomic_store(&calm_ns, gp_min(2 * calm, CALM_MAX_NS));
	else
		atomic_store(&calm_ns, CALM_NS);
	if (!atomic_exchange(&has_begun, true)) {
		atomic_store(&since_ns, time);
		gp_log(GP_LOG_WARN,
			"out of device memory: moved %" PRIu64
			" MiB to host memory (GPUPOOL_SPILL); work that uses them is slower until they are back",
			bytes / GP_MIB);
	} else {
		gp_log(GP_LOG_INFO, "out of device memory: moved %" PRIu64 " MiB more to host memory", bytes / GP_MIB);
	}
	start_watching();
}

void gp_spill_note_end(void)
{
	if (!atomic_exchange(&has_begun, false))
		return;
	atomic_store(&since_ns, 0);
	gp_log(GP_LOG_WARN, "no memory is in host memory any more (GPUPOOL_SPILL)");
}

static uint64_t wait_for_out(void)
{
	uint64_t refused = atomic_load(&refused_ns);

	return refused && now() - refused < OUT_AGAIN_NS ? OUT_WAIT_AGAIN_NS : OUT_WAIT_NS;
}

/* Logs the reason at the level of the error that follows once, and then for who looks closely. */
static void refuse(const char *why)
{
	static _Atomic bool is_logged;
	enum gp_log_level level = atomic_exchange(&is_logged, true) ? GP_LOG_INFO : GP_LOG_WARN;

	atomic_fetch_add(&n_refusals, 1);
	gp_log(level, "GPUPOOL_SPILL: no memory was moved to the host: %s", why);
}

static const char *why_not_moved(const struct order *order, uint64_t bound)
{
	if (order->error == -ENOMEM && bound <= order->bytes)
		return "GPUPOOL_SPILL does not allow more";
	if (order->error == -ENOMEM)
		return "host memory is short, or too little of the program's memory can move";
	return "the driver refused a call";
}

uint64_t gp_spill_make_room(void *arg, uint64_t bytes, uint64_t least)
{
	uint64_t bound = gp_state.config.spill_bytes, host = gp_spill_host_bytes();
	struct order order = {.context = arg, .bytes = bytes, .least = least};
	struct gp_sleep_result result;

	bound -= gp_min(host, bound);
	order.most = gp_min(bound, gp_memory_left("", GP_MEMORY_FOR_USER));
	if (!gp_spill_backend_works()) {
		refuse("the driver lacks functions for it");
		return 0;
	}
	if (!run(&order, move_out, wait_for_out(), &result)) {
		if (result.error == -EBUSY)
			atomic_store(&refused_ns, now());
		refuse(result.why);
		return 0;
	}
	if (order.moved_bytes)
		note_out(order.moved_bytes);
	else
		refuse(why_not_moved(&order, bound));
	return order.moved_bytes;
}

void gp_spill_seek(void *context, bool is_begin)
{
	atomic_fetch_add(&n_seeking, is_begin ? 1u : -1u);
}

/* The memory that the process holds on a device. */
struct room {
	struct gp_context *context; /* the first one; a process with more does not spill */
	uint64_t used_bytes, total_bytes, spilled_bytes, unused_bytes;
};

static void add_pool(void *arg, struct gp_pool *pool)
{
	struct room *room = arg;
	struct gp_stats stats;

	gp_pool_stats(pool, &stats);
	room->used_bytes += stats.used_bytes + stats.retained_bytes;
	room->total_bytes += stats.total_bytes;
	room->spilled_bytes += stats.spilled_bytes;
	room->unused_bytes += stats.cached_bytes + stats.pending_bytes - stats.retained_bytes;
}

static void add_context(void *arg, struct gp_context *context)
{
	struct room *room = arg;

	if (room->context)
		return;
	room->context = gp_context_use(context);
	gp_context_each_pool(context, add_pool, room);
}

/*
 * Returns how many spilled bytes the device has room for, besides all that the program uses: the driver's free memory
 * and the cache. *ret_lacking: what of it the cache would have to give back first.
 */
static uint64_t room_for(const struct room *room, uint64_t *ret_lacking)
{
	uint64_t available = gp_device_available(room->context), kept, fits, free;
	uint64_t left = gp_budget_left_of_all(&room->context->device->budget);

	*ret_lacking = 0;
	if (atomic_load(&n_seeking) || available == UINT64_MAX || gp_reclaim_is_wanted(room->context))
		return 0;
	kept = gp_max(room->context->device->total_bytes / ROOM_SHARE, gp_state.config.reserve_bytes);
	kept = gp_min(kept, room->context->device->total_bytes / 4);
	free = gp_min(available - gp_min(kept, available), left);
	fits = free + room->total_bytes - gp_min(room->used_bytes, room->total_bytes);
	fits = gp_min(fits, room->spilled_bytes);
	*ret_lacking = fits - gp_min(free, fits);
	return fits;
}

static void look(struct room *room)
{
	*room = (struct room){0};
	gp_context_each(add_context, room);
}

static void give_back(void *unused, struct gp_pool *pool)
{
	(void)gp_pool_reclaim(pool);
}

static void give_back_all(void *unused, struct gp_context *context)
{
	gp_context_each_pool(context, give_back, NULL);
}

/* Brings back at most these bytes, in one part. Returns the bytes. */
static uint64_t bring_part(struct room *room, uint64_t most, uint64_t lacking)
{
	struct order order = {.most = gp_min(most, IN_PART)};
	struct gp_sleep_result result;

	if (lacking)
		give_back_all(NULL, room->context);
	if (!run(&order, move_in, IN_WAIT_NS, &result))
		return 0;
	if (order.moved_bytes) {
		atomic_fetch_add(&back_bytes, order.moved_bytes);
		atomic_store(&came_ns, now());
		gp_log(GP_LOG_INFO, "moved %" PRIu64 " MiB back to the device", order.moved_bytes / GP_MIB);
	}
	return order.moved_bytes;
}

uint64_t gp_spill_bring_back(void)
{
	uint64_t back = 0, part = 1, lacking;
	struct room room;

	while (part && gp_spill_host_bytes() && !gp_slow_path_is_any(GP_SLOW_PATH_BYPASS | GP_SLOW_PATH_END)) {
		uint64_t fits = 0;

		look(&room);
		if (room.context)
			fits = room_for(&room, &lacking);
		part = fits ? bring_part(&room, fits, lacking) : 0;
		gp_context_put(room.context);
		back += part;
	}
	return back;
}

/*
 * Looks for room now and then. Memory comes back once there was room for all that comes, at each look, for the time of
 * calm; so a program that frees and allocates in turns keeps its memory where it is.
 */
static uint64_t look_once(uint64_t *calm_since_ns, uint64_t *least)
{
	uint64_t time = now(), lacking = 0, fits = 0, back = 0;
	struct room room;

	look(&room);
	if (room.context)
		fits = room_for(&room, &lacking);
	if (!fits || !*calm_since_ns || atomic_load(&went_ns) > *calm_since_ns) {
		*calm_since_ns = time;
		*least = UINT64_MAX;
	}
	*least = gp_min(*least, fits);
	if (*least && time - *calm_since_ns >= atomic_load(&calm_ns)) {
		back = bring_part(&room, *least, lacking);
		/* The GPU is busy, say: the program should not wait for it over and over. */
		if (!back) {
			*calm_since_ns = 0;
			atomic_store(&calm_ns, gp_min(2 * atomic_load(&calm_ns), CALM_MAX_NS));
		}
	}
	gp_context_put(room.context);
	return back;
}

static void *watch(void *unused)
{
	uint64_t calm_since_ns = 0, least = UINT64_MAX;

	for (;;) {
		gp_clock_sleep(LOOK_NS);
		if (gp_slow_path_is_any(GP_SLOW_PATH_BYPASS | GP_SLOW_PATH_END))
			return NULL;
		if (gp_spill_host_bytes()) {
			(void)look_once(&calm_since_ns, &least);
			continue;
		}
		/* Memory that goes from now on starts another thread, unless it went just before. */
		atomic_store(&is_watched, false);
		if (!gp_spill_host_bytes() || atomic_exchange(&is_watched, true))
			return NULL;
	}
}

bool gp_spill_settle(CUdeviceptr ptr)
{
	struct order order = {.block = ptr};
	struct gp_sleep_result result;
	bool is_quiet;

	if (gp_likely(!gp_spill_host_bytes()) || !gp_spill_has(&gp_state.device_map, ptr))
		return true;
	/* The gate closes only while there is no visit. */
	gp_submit_end_visit();
	is_quiet = run(&order, move_in, IN_WAIT_ASK, &result);
	if (is_quiet && order.error == -ENOMEM) {
		gp_context_each(give_back_all, NULL);
		order.error = 0;
		is_quiet = run(&order, move_in, IN_WAIT_ASK, &result);
	}
	gp_submit_visit();
	if (is_quiet && !gp_spill_has(&gp_state.device_map, ptr))
		return true;
	gp_log(GP_LOG_WARN,
		"memory that GPUPOOL_SPILL has moved to the host cannot be exported, and did not come back: %s",
		!is_quiet                ? result.why
		: order.error == -ENOMEM ? "short of device memory"
					 : "the driver refused a call");
	return false;
}

bool gp_spill_is_there(CUdeviceptr ptr)
{
	return gp_unlikely(gp_spill_host_bytes()) && gp_spill_is_at(&gp_state.device_map, ptr);
}

struct gp_spill_status gp_spill_status(void)
{
	uint64_t since = atomic_load(&since_ns);

	return (struct gp_spill_status){
		.host_bytes = gp_spill_host_bytes(),
		.since_ns = since ? now() - since : 0,
		.out_bytes = atomic_load(&out_bytes),
		.back_bytes = atomic_load(&back_bytes),
		.moving_ns = atomic_load(&moving_ns),
		.n_refusals = atomic_load(&n_refusals),
	};
}

const char *gp_spill_why_not(enum gp_kind kind)
{
	if (!gp_state.config.spill_bytes)
		return NULL;
	if (kind != GP_KIND_VMM)
		return "only memory of the pool type vmm can move to the host; start the program with GPUPOOL_POOL=vmm";
	if (gp_debug_is_on())
		return "GPUPOOL_DEBUG watches the memory; start the program without it";
	return gp_record_is_on() ? "GPUPOOL_RECORD is on; start the program without it" : NULL;
}

void gp_spill_log_no_effect(const struct gp_context *context)
{
	static _Atomic bool is_logged;
	const char *why_not = gp_spill_why_not(atomic_load(&context->device->kind));

	if (why_not && !atomic_exchange(&is_logged, true))
		gp_log(GP_LOG_WARN, "GPUPOOL_SPILL has no effect: %s", why_not);
}

/* The child's calls go to the driver. */
static void reset_in_child(void)
{
	atomic_store(&n_seeking, 0);
	atomic_store(&is_watched, false);
	atomic_store(&has_begun, false);
	atomic_store(&since_ns, 0);
}

void gp_spill_start(void)
{
	static const struct gp_fork_child child = {.fn = reset_in_child};

	if (gp_state.config.spill_bytes)
		gp_fork_on_child(&child);
}
