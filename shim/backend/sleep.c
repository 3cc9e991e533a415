/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "sleep.h"

#include <errno.h>
#include <inttypes.h>

#include "backend_sleep.h"
#include "deep.h"
#include "quiet.h"
#include "pool/pool_control.h"
#include "shim/base/clock.h"
#include "shim/base/fork.h"
#include "shim/base/log.h"
#include "shim/base/memory_left.h"
#include "shim/base/own_thread.h"
#include "shim/base/slow_path.h"
#include "shim/context/context.h"
#include "shim/context/kept.h"
#include "shim/context/driver_call.h"
#include "shim/driver/submit.h"
#include "shim/record/record.h"

/*
 * A process that waits for device memory says so, and asks others for their caches, at these intervals. Until one of
 * them falls asleep for it, it also asks who is idle by now.
 */
#define LOG_NS  UINT64_C(5000000000)
#define ASK_NS  UINT64_C(500000000)
#define REST_NS UINT64_C(100000000)

/* It looks for free memory this often. */
#define LOOK_NS UINT64_C(1000000)

/* While another process falls asleep for it, it takes what is free bit by bit, unless nothing came for this time. */
#define STALL_NS UINT64_C(300000000)

#define NS_PER_MS UINT64_C(1000000)

/* The thread that unpins pauses while another one wants to wake the process: it would take the lock again first. */
#define UNPIN_PAUSE_NS UINT64_C(1000000)

static _Atomic enum gp_sleep_state state;
static _Atomic unsigned n_wakers; /* threads that are asked to wake the process */
static _Atomic uint64_t since_ns, deep_since_ns, n_sleeps, n_wakes;
static bool is_undoing; /* for the thread that moves memory: the sleep has failed after some of it was away */

/* Looks ahead, so that most sleeps that lack host memory fail before any is taken. */
static bool has_host_memory(const struct gp_sleep_bytes *bytes, struct gp_sleep_result *result)
{
	uint64_t bound = gp_state.config.sleep_host_bytes, left = gp_memory_left("", GP_MEMORY_FOR_USER);
	uint64_t kept, needed;

	(void)gp_sleep_host_bytes(&kept);
	needed = bytes->mapped_bytes - gp_min(kept, bytes->mapped_bytes);
	if (bound && bytes->mapped_bytes > bound)
		return gp_quiet_refuse(&result->refusal, -ENOMEM,
			"short of host memory: the content takes %" PRIu64
			" MiB, and GPUPOOL_SLEEP_HOST allows %" PRIu64 " MiB",
			bytes->mapped_bytes / GP_MIB, bound / GP_MIB);
	if (needed > left)
		return gp_quiet_refuse(&result->refusal, -ENOMEM,
			"short of host memory: the content takes %" PRIu64 " MiB, and the machine or the control group "
			"has %" PRIu64 " MiB left",
			needed / GP_MIB, left / GP_MIB);
	return true;
}

/* Gets everything ready, so that only the driver can make the move fail. */
static bool prepare(struct gp_sleepers *sleepers, const struct gp_sleepers_drops *drops, uint64_t end_ns,
	struct gp_sleep_result *result)
{
	struct gp_sleep_bytes all = {0};
	int r = gp_sleepers_enter(sleepers, end_ns);

	if (!r)
		r = gp_sleepers_survey(sleepers, drops, &all);
	if (r == -EAGAIN)
		return gp_quiet_refuse(
			&result->refusal, -EBUSY, "busy: a thread maps, unmaps or exports memory; try again");
	if (r == GP_E_DEAD)
		return gp_quiet_refuse(&result->refusal, -EIO, "a context has ended");
	if (r)
		return gp_quiet_refuse(&result->refusal, -ENOMEM, "short of host memory");
	if (all.shared_bytes)
		return gp_quiet_refuse(&result->refusal, -ENOTSUP,
			"%" PRIu64 " MiB were exported to other processes, or belong to an invalidated region",
			all.shared_bytes / GP_MIB);
	if (all.stuck_bytes)
		return gp_quiet_refuse(&result->refusal, -ENOTSUP, "the driver has refused to unmap %" PRIu64 " MiB",
			all.stuck_bytes / GP_MIB);
	if (!has_host_memory(&all, result))
		return false;
	gp_sleepers_learn(sleepers);
	r = gp_sleepers_take_host(sleepers, gp_quiet_is_awaited, NULL);
	gp_sleep_host_drop_ahead();
	/* Kept memory that fits no chunk would stay for good. */
	for (unsigned i = 0; i < sleepers->n_contexts; i++)
		gp_sleep_host_trim(sleepers->contexts[i]);
	if (r == -ECANCELED)
		return gp_quiet_refuse_awaited(&result->refusal);
	if (r == -ENOMEM)
		return gp_quiet_refuse(&result->refusal, -ENOMEM,
			"short of host memory: %" PRIu64 " MiB could not be pinned", all.mapped_bytes / GP_MIB);
	if (r)
		return gp_quiet_refuse(&result->refusal, -EIO, "the driver refused to pin host memory: error %d", r);
	result->device_bytes = all.device_bytes;
	result->dropped_bytes = all.dropped_bytes;
	result->host_bytes = all.host_bytes;
	return true;
}

static void open_gate(void)
{
	is_undoing = false;
	atomic_store(&since_ns, 0);
	atomic_fetch_and(&gp_slow_path, ~(unsigned)GP_SLOW_PATH_ASLEEP);
	atomic_store(&state, GP_SLEEP_AWAKE);
	gp_quiet_open();
}

/* Results of an attempt to wake. */
enum attempt {
	WOKEN,
	SHORT, /* of device memory: another attempt may succeed */
	REFUSED
};

/* A wait for device memory. */
struct wait {
	enum attempt attempt; /* the last result */
	int error;
	uint64_t bytes, end_ns;
	bool is_any_coming;               /* a process falls asleep for this one */
	bool has_stalled;                 /* memory that was to come did not */
	uint64_t log_ns, ask_ns, rest_ns; /* when to log, to ask for all memory, or only who is idle, the next time */
	uint64_t start_ns;                /* when the wait began; 0: not yet */
	uint64_t try_ns, taken_ns, woken_ns; /* of the last attempt: its start, its memory, its end */
	bool is_undo;                        /* of a sleep that failed */
};

/* Takes device memory as it becomes free, while the copies into what it has are under way. */
static int take_as_it_comes(struct gp_sleepers *sleepers, struct wait *wait)
{
	uint64_t came_ns = gp_clock_now_ns(NULL);

	for (;;) {
		uint64_t taken, now_ns;
		bool is_all;
		int r = gp_sleepers_take_some(sleepers, &taken, &is_all);

		if (r || is_all)
			return r;
		now_ns = gp_clock_now_ns(NULL);
		if (taken)
			came_ns = now_ns;
		wait->has_stalled = now_ns - came_ns >= STALL_NS;
		if (wait->has_stalled || now_ns >= wait->end_ns ||
			gp_slow_path_is_any(GP_SLOW_PATH_BYPASS | GP_SLOW_PATH_END))
			return -ENOMEM;
		gp_clock_sleep(LOOK_NS);
	}
}

/*
 * Takes the device memory of all pools, and moves all in; or holds none of it in the end. A context that has ended or
 * broken is left out: its memory cannot come back, and the driver refuses the program's work itself.
 */
static enum attempt try_to_wake(struct gp_sleepers *sleepers, struct wait *wait)
{
	bool is_bit_by_bit = wait->is_any_coming && !wait->has_stalled;
	unsigned n_lost;
	int r;

	do {
		n_lost = gp_sleepers_lost(sleepers);
		r = gp_sleepers_enter(sleepers, UINT64_MAX);
		if (!r)
			r = is_bit_by_bit ? take_as_it_comes(sleepers, wait) : gp_sleepers_take_device(sleepers);
		wait->taken_ns = gp_clock_now_ns(NULL);
		if (!r)
			r = gp_sleepers_move_in(sleepers);
		if (r)
			gp_sleepers_return_device(sleepers);
		gp_sleepers_leave(sleepers);
		/* A context that has ended or broken meanwhile is left out from now on. */
	} while (r && gp_sleepers_lost(sleepers) != n_lost);
	wait->error = r;
	if (!r || gp_slow_path_is_any(GP_SLOW_PATH_BYPASS))
		return WOKEN;
	return r == -ENOMEM ? SHORT : REFUSED;
}

static void log_wait(const struct wait *wait)
{
	if (wait->attempt == SHORT)
		gp_log(GP_LOG_WARN,
			"waking: waiting for %" PRIu64 " MiB of device memory, which other processes have taken",
			wait->bytes / GP_MIB);
	else
		gp_log(GP_LOG_WARN, "waking: the driver refused the memory with error %d; trying again", wait->error);
}

/* To be called without the lock: a log may make the thread wait. */
static void log_woken(const struct wait *wait)
{
	if (wait->attempt != WOKEN || wait->is_undo)
		return;
	gp_log(GP_LOG_INFO,
		"awake: %" PRIu64 " MiB of device memory are back in %" PRIu64 " ms: %" PRIu64
		" ms until it was free, %" PRIu64 " ms to take it, %" PRIu64 " ms to move",
		wait->bytes / GP_MIB, (wait->woken_ns - wait->start_ns) / NS_PER_MS,
		(wait->try_ns - wait->start_ns) / NS_PER_MS, (wait->taken_ns - wait->try_ns) / NS_PER_MS,
		(wait->woken_ns - wait->taken_ns) / NS_PER_MS);
}

/*
 * A process that waits looks for free memory, and makes an attempt only if there is enough. An attempt takes all memory
 * that there is for a moment, and delays the process that gives it back. Whenever it asks others for all memory it
 * makes an attempt in any case, since the driver may have more than it reports. And while another process falls asleep
 * for it, what is free already can be filled.
 */
static void attempt_to_wake(struct gp_sleepers *sleepers, struct wait *wait)
{
	uint64_t now_ns = gp_clock_now_ns(NULL);
	bool is_first = !wait->start_ns, is_coming = wait->is_any_coming && !wait->has_stalled;

	if (is_first)
		wait->start_ns = now_ns;
	if ((is_first || now_ns < wait->ask_ns) && !is_coming && gp_sleepers_are_short(sleepers)) {
		wait->attempt = SHORT;
		return;
	}
	wait->try_ns = now_ns;
	wait->is_undo = is_undoing;
	atomic_store(&state, GP_SLEEP_WAKING);
	wait->attempt = try_to_wake(sleepers, wait);
	wait->woken_ns = gp_clock_now_ns(NULL);
}

static void ask_others(struct gp_sleepers *sleepers, struct wait *wait)
{
	uint64_t now_ns = gp_clock_now_ns(NULL);
	bool is_for_all = now_ns >= wait->ask_ns;

	if (!is_for_all && now_ns < wait->rest_ns)
		return;
	wait->is_any_coming = gp_sleepers_ask(sleepers, is_for_all);
	now_ns = gp_clock_now_ns(NULL);
	if (is_for_all)
		wait->ask_ns = now_ns + ASK_NS;
	wait->rest_ns = wait->is_any_coming ? wait->ask_ns : now_ns + REST_NS;
}

/* Makes an attempt to wake, as the only thread. After a failure the process is asleep, and holds no device memory. */
static bool wake_alone(struct gp_sleepers *sleepers, struct wait *wait, struct gp_sleep_result *result)
{
	struct gp_sleep_bytes bytes = gp_sleepers_asleep(-1);
	uint64_t lost;

	gp_sleepers_collect(sleepers);
	result->device_bytes = wait->bytes = bytes.device_bytes;
	result->dropped_bytes = bytes.dropped_bytes;
	result->host_bytes = bytes.host_bytes;
	attempt_to_wake(sleepers, wait);
	if (wait->attempt == WOKEN) {
		lost = gp_sleepers_lost_bytes(sleepers);
		if (lost)
			gp_log(GP_LOG_WARN, "waking: a context is unusable; %" PRIu64 " MiB that were asleep are lost",
				lost / GP_MIB);
		atomic_fetch_add(&n_wakes, !is_undoing);
		open_gate();
	} else {
		atomic_store(&state, GP_SLEEP_ASLEEP);
		ask_others(sleepers, wait);
	}
	gp_sleepers_put(sleepers);
	return wait->attempt == WOKEN;
}

/* Pauses between two attempts. The thread holds nothing, so signals are delivered and other threads may do the same. */
static void pause_wake(struct wait *wait, unsigned attempt)
{
	if (gp_clock_now_ns(NULL) >= wait->log_ns) {
		log_wait(wait);
		wait->log_ns = gp_clock_now_ns(NULL) + LOG_NS;
	}
	if (wait->attempt == SHORT)
		gp_clock_sleep(LOOK_NS);
	else
		gp_clock_pause(NULL, attempt);
}

static bool fail_wake(const struct wait *wait, struct gp_sleep_result *result)
{
	if (wait->attempt == SHORT)
		return gp_quiet_refuse(&result->refusal, -ENOMEM,
			"short of device memory: %" PRIu64 " MiB are needed in all; the process stays asleep",
			wait->bytes / GP_MIB);
	return gp_quiet_refuse(&result->refusal, -EIO,
		"the driver refused the memory with error %d; the process stays asleep", wait->error);
}

/*
 * Wakes the process, and waits for device memory until end_ns. The process stays asleep meanwhile, and holds memory
 * only while more of it comes, so that two processes that wake at the same time do not wait for each other.
 */
static bool wake(uint64_t end_ns, struct gp_sleep_result *result)
{
	struct wait wait = {.attempt = SHORT, .end_ns = end_ns};
	struct gp_quiet_hold hold;
	bool is_awake, is_deep;

	atomic_fetch_add(&n_wakers, 1);
	for (unsigned attempt = 0;; attempt++) {
		if (!gp_quiet_take(end_ns, &hold)) {
			is_awake = gp_quiet_refuse(&result->refusal, -EBUSY,
				"busy: another thread wakes the process, or puts it to sleep");
			break;
		}
		is_awake = atomic_load(&state) != GP_SLEEP_ASLEEP;
		is_deep = gp_deep_is();
		if (is_awake && !attempt)
			result->was_so = true;
		if (!is_awake && !is_deep)
			is_awake = wake_alone(hold.sleepers, &wait, result);
		gp_quiet_give(&hold);
		if (is_awake)
			break;
		if (is_deep) {
			is_awake = gp_quiet_refuse(&result->refusal, -EBUSY,
				"the process is deep asleep: only gpupool-stat wake wakes it");
			break;
		}
		if (!gp_quiet_left(end_ns)) {
			is_awake = fail_wake(&wait, result);
			break;
		}
		pause_wake(&wait, attempt);
	}
	atomic_fetch_sub(&n_wakers, 1);
	log_woken(&wait);
	return is_awake;
}

/* Moves the memory out. After a failure some of it may be away. */
static bool move_out(struct gp_sleepers *sleepers, struct gp_sleep_result *result)
{
	bool have_dropped;
	int r;

	atomic_store(&state, GP_SLEEP_MOVING);
	r = gp_sleepers_move_out(sleepers, gp_quiet_is_awaited, NULL);
	gp_sleepers_leave(sleepers);
	have_dropped = gp_sleepers_have_dropped(sleepers);
	if (!r)
		return true;
	if (have_dropped)
		return gp_quiet_refuse(&result->refusal, -EIO,
			"the driver refused to move memory: error %d; the process is awake, and content that was to be "
			"dropped is lost",
			r);
	if (r == -ECANCELED)
		return gp_quiet_refuse(&result->refusal, -EBUSY, "the program has submitted work meanwhile");
	if (r == GP_E_DEAD)
		return gp_quiet_refuse(&result->refusal, -EIO, "a context has ended");
	return gp_quiet_refuse(&result->refusal, -EIO, "the driver refused to move memory: error %d", r);
}

static void fall_asleep(void)
{
	atomic_store(&since_ns, gp_clock_now_ns(NULL));
	atomic_fetch_or(&gp_slow_path, GP_SLOW_PATH_ASLEEP);
	atomic_fetch_add(&n_sleeps, !is_undoing);
	atomic_store(&state, GP_SLEEP_ASLEEP);
}

static void reclaim_all(const struct gp_sleepers *sleepers)
{
	(void)gp_kept_trim(-1, UINT64_MAX);
	for (unsigned i = 0; i < sleepers->n_pools; i++) {
		gp_record(sleepers->pools[i].pool, RECLAIM, 0);
		(void)gp_pool_reclaim(sleepers->pools[i].pool);
	}
}

/*
 * Makes an attempt to sleep, as the only thread. After a failure in the move the process is asleep, too, since the
 * memory that is away has to come back as in any wake: is_undoing is set.
 */
static bool sleep_alone(const struct gp_quiet_hold *hold, const struct gp_sleepers_drops *drops, uint64_t end_ns,
	struct gp_sleep_result *result)
{
	uint64_t start_ns = gp_clock_now_ns(NULL), quiet_ns, ready_ns;
	bool is_ready, is_asleep;

	atomic_store(&state, GP_SLEEP_CLOSING);
	is_ready = gp_quiet_begin(hold, GP_QUIET_YIELDS, end_ns, &result->refusal);
	quiet_ns = gp_clock_now_ns(NULL);
	if (is_ready)
		reclaim_all(hold->sleepers);
	is_ready = is_ready && prepare(hold->sleepers, drops, end_ns, result);
	ready_ns = gp_clock_now_ns(NULL);
	is_asleep = is_ready && move_out(hold->sleepers, result);
	result->quiet_ns = quiet_ns - start_ns;
	result->host_ns = ready_ns - quiet_ns;
	result->move_ns = gp_clock_now_ns(NULL) - ready_ns;
	gp_sleepers_leave(hold->sleepers);
	is_undoing = is_ready && !is_asleep;
	if (is_ready)
		fall_asleep();
	else
		open_gate();
	return is_asleep;
}

static bool fail_late(struct gp_sleep_result *result)
{
	return gp_quiet_refuse(&result->refusal, -EBUSY,
		"the request came too late: this process did not run, or had others to answer");
}

static bool is_too_much_pinned(void)
{
	return gp_sleep_pinned_bytes() > gp_state.config.sleep_pinned_bytes;
}

/* Unpins one piece of host memory. False if the process is awake, deep asleep or ending, or little enough is pinned. */
static bool unpin_one(void)
{
	struct gp_quiet_hold hold;
	bool is_any = false;

	if (gp_deep_is())
		return false;
	if (gp_quiet_has_waiting() || atomic_load(&n_wakers)) {
		gp_clock_sleep(UNPIN_PAUSE_NS);
		return !gp_slow_path_is_any(GP_SLOW_PATH_BYPASS | GP_SLOW_PATH_END);
	}
	(void)gp_quiet_take(UINT64_MAX, &hold);
	gp_quiet_set_brief(true);
	if (atomic_load(&state) == GP_SLEEP_ASLEEP && !gp_deep_is() && is_too_much_pinned() &&
		!gp_slow_path_is_any(GP_SLOW_PATH_BYPASS | GP_SLOW_PATH_END)) {
		gp_sleepers_collect(hold.sleepers);
		is_any = !gp_sleepers_enter(hold.sleepers, UINT64_MAX) && gp_sleepers_unpin(hold.sleepers);
		gp_sleepers_leave(hold.sleepers);
		gp_sleepers_put(hold.sleepers);
	}
	gp_quiet_set_brief(false);
	gp_quiet_give(&hold);
	return is_any;
}

static void *unpin(void *unused)
{
	while (unpin_one()) {
	}
	return NULL;
}

/* Makes attempts until none is interrupted by a signal, whose handler runs between two of them. */
static bool fall_asleep_by(const struct gp_sleepers_drops *drops, uint64_t end_ns, struct gp_sleep_result *result)
{
	struct gp_sleep_result unused;
	struct gp_quiet_hold hold;
	bool is_asleep, has_to_wake;

	do {
		*result = (struct gp_sleep_result){0};
		if (!gp_quiet_take(end_ns, &hold))
			return gp_quiet_refuse(&result->refusal, -EBUSY,
				"busy: another thread wakes the process, or puts it to sleep; try again");
		is_asleep = result->was_so = atomic_load(&state) == GP_SLEEP_ASLEEP;
		if (!is_asleep) {
			gp_sleepers_collect(hold.sleepers);
			is_asleep = sleep_alone(&hold, drops, end_ns, result);
			gp_sleepers_put(hold.sleepers);
		}
		has_to_wake = is_undoing && !result->was_so;
		gp_quiet_give(&hold);
	} while (!is_asleep && result->refusal.error == -EINTR);
	if (has_to_wake)
		(void)wake(UINT64_MAX, &unused);
	/* The device memory has gone back. The driver's tables for the host memory follow, piece by piece. */
	if (is_asleep && is_too_much_pinned() && gp_own_thread_start(unpin, NULL, GP_STACK_SMALL))
		(void)unpin(NULL);
	return is_asleep;
}

bool gp_sleep_as(const struct gp_sleep_request *request, struct gp_sleep_result *ret_result)
{
	uint64_t start_ns = gp_clock_now_ns(NULL), before_ns = request->before_ns ? request->before_ns : UINT64_MAX;
	uint64_t end_ns = gp_min(gp_quiet_deadline(request->timeout_ns), before_ns);
	bool is_asleep;

	*ret_result = (struct gp_sleep_result){0};
	if (start_ns > before_ns)
		return fail_late(ret_result);
	is_asleep = fall_asleep_by(&request->drops, end_ns, ret_result);
	ret_result->ns = gp_clock_now_ns(NULL) - start_ns;
	if (is_asleep && !ret_result->was_so)
		gp_log(GP_LOG_INFO,
			"asleep: %" PRIu64 " MiB of device memory have gone back to the driver in %" PRIu64
			" ms: %" PRIu64 " ms until nothing used it, %" PRIu64 " ms to get host memory, %" PRIu64
			" ms to move",
			ret_result->device_bytes / GP_MIB, ret_result->ns / NS_PER_MS, ret_result->quiet_ns / NS_PER_MS,
			ret_result->host_ns / NS_PER_MS, ret_result->move_ns / NS_PER_MS);
	return is_asleep;
}

bool gp_sleep(uint64_t timeout_ns, struct gp_sleep_result *ret_result)
{
	return gp_sleep_as(&(struct gp_sleep_request){.timeout_ns = timeout_ns}, ret_result);
}

bool gp_wake(uint64_t timeout_ns, struct gp_sleep_result *ret_result)
{
	uint64_t start_ns = gp_clock_now_ns(NULL);
	bool is_awake;

	*ret_result = (struct gp_sleep_result){0};
	is_awake = wake(gp_quiet_deadline(timeout_ns), ret_result);
	ret_result->ns = gp_clock_now_ns(NULL) - start_ns;
	return is_awake;
}

/* The driver copies the rest of the content into the process, where the kernel may find it too much. */
#define CONTEXT_HOST_BYTES (UINT64_C(1) << 30)

static bool has_host_memory_for_rest(struct gp_sleep_result *result)
{
	uint64_t needed = 0, left = gp_memory_left("", GP_MEMORY_FOR_USER);

	for (int i = 0; i < GP_DEVICES_MAX; i++)
		if (gp_device_if_used(i))
			needed += CONTEXT_HOST_BYTES + gp_device_unpooled_bytes(gp_device_if_used(i));
	return needed <= left || gp_quiet_refuse(&result->refusal, -ENOMEM,
					 "short of host memory: the driver may need %" PRIu64
					 " MiB, and the machine or the control group has %" PRIu64 " MiB left",
					 needed / GP_MIB, left / GP_MIB);
}

bool gp_deepen(struct gp_sleep_result *ret_result)
{
	struct gp_quiet_hold hold;
	bool is_done;

	*ret_result = (struct gp_sleep_result){0};
	if (!gp_quiet_take(0, &hold))
		return gp_quiet_refuse(
			&ret_result->refusal, -EBUSY, "busy: another thread wakes the process, or puts it to sleep");
	ret_result->was_so = gp_deep_is();
	if (atomic_load(&state) != GP_SLEEP_ASLEEP)
		is_done = gp_quiet_refuse(&ret_result->refusal, -EBUSY, "the process is not asleep");
	else if (ret_result->was_so)
		is_done = true;
	else if (gp_deep_refused())
		is_done = gp_quiet_refuse(&ret_result->refusal, -ENOTSUP,
			"the process has used %s, which the driver does not take out", gp_deep_refused());
	else
		is_done = has_host_memory_for_rest(ret_result);
	if (is_done && !ret_result->was_so) {
		atomic_store(&deep_since_ns, gp_clock_now_ns(NULL));
		gp_deep_begin();
	}
	gp_quiet_give(&hold);
	return is_done;
}

static void surface(void)
{
	atomic_store(&deep_since_ns, 0);
	gp_deep_end();
}

bool gp_deep_undo(struct gp_sleep_result *ret_result)
{
	struct gp_quiet_hold hold;

	*ret_result = (struct gp_sleep_result){0};
	if (!gp_quiet_take(0, &hold))
		return gp_quiet_refuse(
			&ret_result->refusal, -EBUSY, "busy: another thread wakes the process, or puts it to sleep");
	ret_result->was_so = !gp_deep_is();
	if (!ret_result->was_so)
		surface();
	gp_quiet_give(&hold);
	return true;
}

/*
 * A thread of the program stands at the closed gate. It waits for the thread that moves memory, if there is one, and
 * until the process is not deep asleep.
 */
static bool wake_for_work(void)
{
	struct wait wait = {.attempt = SHORT, .end_ns = UINT64_MAX};
	struct gp_sleep_result result;
	struct gp_quiet_hold hold;
	bool is_awake, is_deep;

	if (!gp_quiet_arrive())
		return false;
	for (unsigned attempt = 0;; attempt++) {
		gp_quiet_take_in_turn(&hold);
		is_deep = gp_deep_is();
		is_awake = !is_deep &&
			   (atomic_load(&state) != GP_SLEEP_ASLEEP || wake_alone(hold.sleepers, &wait, &result));
		gp_quiet_give(&hold);
		if (is_awake)
			break;
		if (is_deep)
			gp_deep_await();
		else
			pause_wake(&wait, attempt);
	}
	gp_quiet_depart();
	log_woken(&wait);
	return true;
}

const char *gp_sleep_state_name(enum gp_sleep_state which)
{
	static const char *const names[] = {
		[GP_SLEEP_AWAKE] = "awake",
		[GP_SLEEP_CLOSING] = "falling asleep",
		[GP_SLEEP_MOVING] = "falling asleep",
		[GP_SLEEP_ASLEEP] = "asleep",
		[GP_SLEEP_WAKING] = "waking",
	};

	return names[which];
}

struct gp_sleep_status gp_sleep_status(void)
{
	uint64_t since = atomic_load(&since_ns), deep_since = atomic_load(&deep_since_ns);
	struct gp_sleep_status status = {
		.state = atomic_load(&state),
		.since_ns = since ? gp_clock_now_ns(NULL) - since : 0,
		.n_sleeps = atomic_load(&n_sleeps),
		.n_wakes = atomic_load(&n_wakes),
		.is_deep = gp_deep_is(),
		.deep_ns = deep_since ? gp_clock_now_ns(NULL) - deep_since : 0,
	};
	struct gp_sleep_bytes bytes = gp_sleepers_asleep(-1);

	(void)gp_sleep_host_bytes(&status.kept_bytes);
	status.device_bytes = bytes.device_bytes;
	status.dropped_bytes = bytes.dropped_bytes;
	status.host_bytes = bytes.host_bytes;
	return status;
}

uint64_t gp_sleep_bytes_of(int device)
{
	struct gp_sleep_bytes asleep = {0};

	if (atomic_load(&state) != GP_SLEEP_AWAKE)
		asleep = gp_sleepers_asleep(device);
	return asleep.device_bytes - asleep.taken_bytes;
}

/* The child's calls go to the driver, which refuses them. */
static void reset_in_child(void)
{
	atomic_store(&n_wakers, 0);
	surface();
	open_gate();
}

void gp_sleep_start(void)
{
	static const struct gp_fork_child child = {.fn = reset_in_child};
	static struct gp_context_watcher watcher = {.after_end = gp_sleep_host_trim};

	gp_quiet_start();
	gp_fork_on_child(&child);
	gp_context_watch(&watcher);
	gp_submit_on_closed(wake_for_work);
}
