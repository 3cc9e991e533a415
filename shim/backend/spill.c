/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "spill.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

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
#include "shim/context/kept.h"
#include "shim/debug/debug.h"
#include "shim/driver/submit.h"
#include "shim/reclaim/reclaim.h"
#include "shim/record/record.h"
#include "peer_access.h"
#include "quiet.h"
#include "spill_calm.h"

#define MS UINT64_C(1000000)
#define S  (1000 * MS)

/*
 * An allocation waits this long for the GPU. After it has waited without success, other allocations hardly wait for a
 * while.
 */
#define OUT_WAIT_NS       (1 * S)
#define OUT_WAIT_AGAIN_NS (10 * MS)
#define OUT_AGAIN_NS      (10 * S)

/* Memory that comes back makes the program wait this long, and moves in parts of this size, but for larger chunks. */
#define IN_WAIT_NS  (50 * MS)
#define IN_PART     (1 * GP_GIB)
#define IN_WAIT_ASK (1 * S) /* for a call that cannot go on without it */

#define LOOK_NS (200 * MS)

/* This part of the device must stay free. */
enum { ROOM_SHARE = 64 };

static _Atomic unsigned n_seeking; /* allocations that are short: nothing comes back meanwhile */
static _Atomic bool is_watched;    /* the thread that brings memory back runs */
static _Atomic bool has_begun;     /* the log has said that memory went to the host */
static _Atomic uint64_t since_ns, out_bytes, back_bytes, moving_ns, n_refusals;
static _Atomic uint64_t refused_ns; /* when memory could not go */

static struct gp_mutex lock = GP_MUTEX_INIT(GP_RANK_LEAF); /* of the next two */
static struct gp_spill_calm calms[GP_DEVICES_MAX];
static char whys[GP_SPILL_DIRECTIONS][GP_QUIET_WHY_MAX];

static uint64_t now(void)
{
	return gp_clock_now_ns(NULL);
}

/* Notes why memory could not move, for the status. Empty: it could, the last time. */
static void note_why(enum gp_spill_direction direction, const char *why)
{
	gp_mutex_lock(&lock);
	snprintf(whys[direction], sizeof(whys[direction]), "%s", why);
	gp_mutex_unlock(&lock);
}

/* An order to move memory of several pools. */
struct order {
	uint64_t bytes, least, most; /* out: as make_room, and the most that may go; in: the most that may come */
	uint64_t part;               /* in: nothing more comes once this has come */
	CUdeviceptr block;           /* in: only this block; or 0 */
	struct gp_context *context;  /* out; in: one of the device */
	uint64_t moved_bytes;
	bool has_peers;  /* some of the device's memory may be used by other devices */
	bool is_bounded; /* out: the setting allows no more than `most` */
	int error;
};

/* For the thread that moves memory. */
static struct gp_pool *pools[GP_SLEEPERS_POOLS_MAX];

/*
 * Lists the pools of the order's device. Memory that work of another device may use stays where it is: over the link to
 * the host that device would use it at another speed than its program was made for.
 */
static unsigned list_pools(struct order *order, const struct gp_sleepers *sleepers, bool is_out)
{
	unsigned n = 0;

	for (unsigned i = 0; i < sleepers->n_pools; i++) {
		const struct gp_sleeper *sleeper = &sleepers->pools[i];
		uint64_t own = UINT64_C(1) << sleeper->context->device->index;

		if (!sleeper->is_entered || sleeper->context->device != order->context->device)
			continue;
		if (is_out && (gp_peer_access_devices(sleeper->context->handle) & ~own))
			order->has_peers = true;
		else
			pools[n++] = sleeper->pool;
	}
	return n;
}

/* Returns how much more may go to the host. With the lock of quiet.h: other threads may be short, too. */
static uint64_t most_out(bool *ret_is_bounded)
{
	uint64_t bound = gp_state.config.spill_bytes, left = gp_memory_left("", GP_MEMORY_FOR_USER);

	bound -= gp_min(gp_spill_host_bytes(), bound);
	*ret_is_bounded = bound <= left;
	return gp_min(bound, left);
}

static void move_out(void *arg, const struct gp_sleepers *sleepers)
{
	struct order *order = arg;
	struct gp_budget *budget = &order->context->device->budget;
	uint64_t available = gp_device_available(order->context);
	uint64_t left = gp_budget_left_of_all(budget), have = gp_min(available, left);
	uint64_t missing = order->bytes - gp_min(have, order->bytes);
	unsigned n = list_pools(order, sleepers, true);

	/* A limit that was lowered may have been exceeded before. */
	if (!left)
		missing += gp_budget_over(budget);
	order->most = most_out(&order->is_bounded);
	order->moved_bytes = gp_spill_out(pools, n, gp_max(missing, order->least), order->most, &order->error);
}

static void move_in(void *arg, const struct gp_sleepers *sleepers)
{
	struct order *order = arg;
	unsigned n = list_pools(order, sleepers, false);

	order->moved_bytes = gp_spill_in(pools, n, order->most, order->part, &order->error);
}

static void move_block_in(void *arg, const struct gp_sleepers *sleepers)
{
	struct order *order = arg;

	for (unsigned i = 0; i < sleepers->n_pools && !order->error; i++)
		if (sleepers->pools[i].is_entered)
			order->error = gp_spill_in_block(sleepers->pools[i].pool, order->block);
}

/* Moves, with the gate closed. Returns false with the reason if that could not begin. */
static bool run(struct order *order, void (*fn)(void *arg, const struct gp_sleepers *sleepers), uint64_t wait_ns,
	struct gp_quiet_refusal *refusal)
{
	enum gp_quiet_manner manner = order->block ? GP_QUIET_TO_DEVICE : GP_QUIET_PERSISTS;
	uint64_t start_ns = now();
	bool is_done = gp_quiet_run(manner, wait_ns, fn, order, refusal);

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

static void note_out(const struct gp_device *device, uint64_t bytes)
{
	uint64_t time = now();

	atomic_fetch_add(&out_bytes, bytes);
	gp_mutex_lock(&lock);
	gp_spill_calm_note_out(&calms[device->index], time);
	gp_mutex_unlock(&lock);
	note_why(GP_SPILL_OUT, "");
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
	note_why(GP_SPILL_OUT, why);
	gp_log(level, "GPUPOOL_SPILL: no memory was moved to the host: %s", why);
}

static const char *why_not_moved(const struct order *order)
{
	if (order->error == -ENOMEM && order->is_bounded && order->most <= order->bytes)
		return "GPUPOOL_SPILL does not allow more";
	if (order->error == -ENOMEM && order->has_peers)
		return "other devices may use the memory (peer access)";
	if (order->error == -ENOMEM)
		return "host memory is short, or too little of the program's memory can move";
	return "the driver refused a call";
}

uint64_t gp_spill_make_room(void *arg, uint64_t bytes, uint64_t least)
{
	struct order order = {.context = arg, .bytes = bytes, .least = least};
	struct gp_quiet_refusal refusal;

	if (!gp_spill_backend_works()) {
		refuse("the driver lacks functions for it");
		return 0;
	}
	if (!run(&order, move_out, wait_for_out(), &refusal)) {
		if (refusal.error == -EBUSY)
			atomic_store(&refused_ns, now());
		refuse(refusal.why);
		return 0;
	}
	if (order.moved_bytes)
		note_out(order.context->device, order.moved_bytes);
	else
		refuse(why_not_moved(&order));
	return order.moved_bytes;
}

void gp_spill_seek(void *context, bool is_begin)
{
	atomic_fetch_add(&n_seeking, is_begin ? 1u : -1u);
}

/* The memory that the process holds on a device. */
struct room {
	const struct gp_device *device;
	struct gp_context *context; /* one of the device */
	uint64_t used_bytes, total_bytes, spilled_bytes;
};

static void add_pool(void *arg, struct gp_pool *pool)
{
	struct room *room = arg;
	struct gp_stats stats;

	gp_pool_stats(pool, &stats);
	room->used_bytes += stats.used_bytes + stats.retained_bytes;
	room->total_bytes += stats.total_bytes;
	room->spilled_bytes += stats.spilled_bytes;
}

static void add_context(void *arg, struct gp_context *context)
{
	struct room *room = arg;

	if (context->device != room->device || gp_sleepers_is_lost(context))
		return;
	if (!room->context)
		room->context = gp_context_use(context);
	gp_context_each_pool(context, add_pool, room);
}

/*
 * Returns how many spilled bytes the device has room for, besides all that the program uses: the driver's free memory,
 * the cache and unused mappings. *ret_lacking: what of it these would have to give back first.
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
	fits = free + gp_kept_unused(room->context->device);
	fits += room->total_bytes - gp_min(room->used_bytes, room->total_bytes);
	fits = gp_min(fits, room->spilled_bytes);
	*ret_lacking = fits - gp_min(free, fits);
	return fits;
}

/* Adds up what a device has. Returns false if none of its memory is in the host. The caller puts the context. */
static bool survey(int index, struct room *room)
{
	*room = (struct room){.device = gp_device_if_used(index)};
	if (!room->device)
		return false;
	gp_context_each(add_context, room);
	return room->spilled_bytes != 0;
}

static void give_back(void *unused, struct gp_pool *pool)
{
	(void)gp_pool_reclaim(pool);
}

static void give_back_all(void *device, struct gp_context *context)
{
	if (!device || context->device == device)
		gp_context_each_pool(context, give_back, NULL);
}

static void note_back(const struct gp_device *device, uint64_t bytes)
{
	gp_mutex_lock(&lock);
	gp_spill_calm_note_back(&calms[device->index], now(), bytes);
	gp_mutex_unlock(&lock);
}

/* Brings back one part of at most these bytes. Returns its bytes. */
static uint64_t bring_part(struct room *room, uint64_t most, uint64_t lacking)
{
	struct order order = {.context = room->context, .most = most, .part = IN_PART};
	struct gp_quiet_refusal refusal;

	if (lacking && gp_kept_trim(room->context->device->index, lacking) < lacking)
		gp_context_each(give_back_all, room->context->device);
	if (!run(&order, move_in, IN_WAIT_NS, &refusal))
		note_why(GP_SPILL_BACK, refusal.why);
	else if (order.moved_bytes)
		note_why(GP_SPILL_BACK, "");
	else
		note_why(GP_SPILL_BACK, order.error > 0 ? "the driver refused a call" : "short of device memory");
	if (order.moved_bytes) {
		atomic_fetch_add(&back_bytes, order.moved_bytes);
		note_back(room->device, order.moved_bytes);
		gp_log(GP_LOG_INFO, "moved %" PRIu64 " MiB back to the device", order.moved_bytes / GP_MIB);
	}
	return order.moved_bytes;
}

static bool is_over(void)
{
	return !gp_spill_host_bytes() || gp_slow_path_is_any(GP_SLOW_PATH_BYPASS | GP_SLOW_PATH_END);
}

uint64_t gp_spill_bring_back(void)
{
	uint64_t back = 0, part, lacking;

	for (int i = 0; i < GP_DEVICES_MAX; i++) {
		do {
			struct room room;
			uint64_t fits;

			if (is_over())
				return back;
			part = 0;
			fits = survey(i, &room) ? room_for(&room, &lacking) : 0;
			if (fits)
				part = bring_part(&room, fits, lacking);
			if (room.context)
				gp_context_put(room.context);
			back += part;
		} while (part);
	}
	return back;
}

/*
 * Looks for room on a device. Memory comes back once there was room for all that comes, at each look, for the time of
 * calm (spill_calm.h).
 */
static void look_at(int index)
{
	uint64_t lacking = 0, fits = 0, back;
	struct room room;

	if (survey(index, &room))
		fits = room_for(&room, &lacking);
	gp_mutex_lock(&lock);
	back = gp_spill_calm_look(&calms[index], now(), fits);
	gp_mutex_unlock(&lock);
	if (back && !bring_part(&room, back, lacking - gp_min(fits - back, lacking)))
		note_back(room.device, 0);
	if (room.context)
		gp_context_put(room.context);
}

static void *watch(void *unused)
{
	for (;;) {
		gp_clock_sleep(LOOK_NS);
		if (gp_slow_path_is_any(GP_SLOW_PATH_BYPASS | GP_SLOW_PATH_END))
			return NULL;
		/* Nothing comes back asleep. Deep asleep, the driver must not be called. */
		if (gp_slow_path_is_any(GP_SLOW_PATH_ASLEEP | GP_SLOW_PATH_DEEP))
			continue;
		if (gp_spill_host_bytes()) {
			for (int i = 0; i < GP_DEVICES_MAX; i++)
				look_at(i);
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
	struct gp_quiet_refusal refusal;
	bool is_quiet;

	if (gp_likely(!gp_spill_host_bytes()) || !gp_spill_has(&gp_state.device_map, ptr))
		return true;
	/* The gate closes only while there is no visit. */
	gp_submit_end_visit();
	is_quiet = run(&order, move_block_in, IN_WAIT_ASK, &refusal);
	if (is_quiet && order.error == -ENOMEM) {
		(void)gp_kept_trim(-1, UINT64_MAX);
		gp_context_each(give_back_all, NULL);
		order.error = 0;
		is_quiet = run(&order, move_block_in, IN_WAIT_ASK, &refusal);
	}
	gp_submit_visit();
	if (is_quiet && !gp_spill_has(&gp_state.device_map, ptr))
		return true;
	gp_log(GP_LOG_WARN,
		"memory that GPUPOOL_SPILL has moved to the host cannot be exported, and did not come back: %s",
		!is_quiet                ? refusal.why
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
	struct gp_spill_status status = {
		.host_bytes = gp_spill_host_bytes(),
		.since_ns = since ? now() - since : 0,
		.out_bytes = atomic_load(&out_bytes),
		.back_bytes = atomic_load(&back_bytes),
		.moving_ns = atomic_load(&moving_ns),
		.n_refusals = atomic_load(&n_refusals),
	};

	status.copied_bytes = gp_spill_copied(&status.copied_ns);
	gp_mutex_lock(&lock);
	memcpy(status.whys, whys, sizeof(whys));
	gp_mutex_unlock(&lock);
	return status;
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
	gp_mutex_init(&lock, GP_RANK_LEAF);
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
