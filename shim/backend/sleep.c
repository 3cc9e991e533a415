/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "sleep.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>

#include "backend_sleep.h"
#include "pool/pool_control.h"
#include "pool/vmm/sleep.h"
#include "shim/base/clock.h"
#include "shim/base/fork.h"
#include "shim/base/log.h"
#include "shim/base/memory_left.h"
#include "shim/base/slow_path.h"
#include "shim/context/capture.h"
#include "shim/context/context.h"
#include "shim/context/driver_call.h"
#include "shim/context/libraries.h"
#include "shim/context/serial.h"
#include "shim/debug/debug.h"
#include "shim/driver/driver_table.h"
#include "shim/driver/submit.h"
#include "shim/record/record.h"

/* A process that waits for device memory says so, and asks others for memory, at these intervals. */
#define LOG_NS UINT64_C(5000000000)
#define ASK_NS UINT64_C(1000000000)

enum { POOLS_MAX = GP_REGIONS_MAX + 1 };

/* One thread at a time puts the process to sleep or wakes it. It holds this for as long as that takes. */
static struct gp_mutex lock = GP_MUTEX_INIT(GP_RANK_SLEEP);
static _Thread_local bool is_mover __attribute__((tls_model("initial-exec"))); /* this thread holds it */

static _Atomic enum gp_sleep_state state;
static _Atomic unsigned n_waiting; /* threads at the gate */
static _Atomic uint64_t since_ns, n_sleeps, n_wakes;
static _Atomic int device_asleep; /* the device of the memory that is asleep */

/* The pools of the context that sleeps, with references. */
struct pools {
	struct gp_context *context;
	struct gp_pool *pools[POOLS_MAX];
	bool is_entered[POOLS_MAX];
	int n;
	unsigned n_contexts;
	bool is_patient; /* threads at the gate wait until the time is up */
};

static bool fail(struct gp_sleep_result *result, int error, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

static bool fail(struct gp_sleep_result *result, int error, const char *format, ...)
{
	va_list args;

	result->error = error;
	va_start(args, format);
	vsnprintf(result->why, sizeof(result->why), format, args);
	va_end(args);
	return false;
}

static void add_pool(void *arg, struct gp_pool *pool)
{
	struct pools *pools = arg;

	if (pools->n < POOLS_MAX)
		pools->pools[pools->n++] = gp_pool_get(pool);
}

static void add_context(void *arg, struct gp_context *context)
{
	struct pools *pools = arg;

	if (pools->n_contexts++)
		return;
	pools->context = gp_context_use(context);
	gp_context_each_pool(context, add_pool, pools);
}

static void collect(struct pools *pools)
{
	*pools = (struct pools){0};
	gp_context_each(add_context, pools);
}

static void put(struct pools *pools)
{
	for (int i = 0; i < pools->n; i++)
		gp_pool_put(pools->pools[i]);
	gp_context_put(pools->context);
}

static uint64_t left_until(uint64_t end_ns)
{
	uint64_t now_ns = gp_clock_now_ns(NULL);

	return now_ns < end_ns ? end_ns - now_ns : 0;
}

static uint64_t deadline(uint64_t timeout_ns)
{
	uint64_t now_ns = gp_clock_now_ns(NULL);

	return timeout_ns > UINT64_MAX - now_ns ? UINT64_MAX : now_ns + timeout_ns;
}

/* A thread that was cancelled inside the driver would leave the gate closed. */
static void own(int *ret_cancel_state)
{
	is_mover = true;
	(void)pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, ret_cancel_state);
}

/* Begins a sleep or a wake, as the only thread. False if another thread is not done with one in time. */
static bool begin(uint64_t end_ns, int *ret_cancel_state)
{
	for (unsigned attempt = 0; !gp_mutex_try(&lock); attempt++) {
		if (!left_until(end_ns))
			return false;
		gp_clock_pause(NULL, attempt);
	}
	own(ret_cancel_state);
	return true;
}

static void end(int cancel_state)
{
	is_mover = false;
	gp_mutex_unlock(&lock);
	(void)pthread_setcancelstate(cancel_state, NULL);
}

/* Reasons that hold for the process for good, or until the user changes a setting. */
static bool is_able(const struct pools *pools, struct gp_sleep_result *result)
{
	const char *unseen = gp_serial_why_unseen();

	if (gp_slow_path_is_any(GP_SLOW_PATH_BYPASS | GP_SLOW_PATH_END))
		return fail(result, -ENOTSUP, "the process is ending");
	if (!pools->context)
		return fail(result, -ENOTSUP, "the process has no pooled memory");
	if (pools->context->regions.kind != GP_KIND_VMM)
		return fail(result, -ENOTSUP,
			"only memory of the pool type vmm can sleep, and this is %s; start the program with "
			"GPUPOOL_POOL=vmm",
			gp_kind_name(pools->context->regions.kind));
	if (gp_debug_is_on())
		return fail(result, -ENOTSUP, "GPUPOOL_DEBUG watches the memory; start the program without it");
	if (gp_record_is_on())
		return fail(result, -ENOTSUP, "GPUPOOL_RECORD is on; start the program without it");
	if (!gp_sleep_backend_works() || !gp_real.cuCtxRecordEvent || !gp_real.cuCtxWaitEvent)
		return fail(result, -ENOTSUP, "the driver lacks functions that a sleep needs");
	if (unseen || gp_submission_is_unseen(&gp_submitted))
		return fail(result, -ENOTSUP, "work may be submitted past gpupool: %s", unseen ? unseen : "a lookup");
	if (gp_real_why_unexamined())
		return fail(result, -ENOTSUP, "calls may reach the driver past gpupool: %s", gp_real_why_unexamined());
	return true;
}

/* Reasons that the program may cause at any time. Asked again once the gate is closed. */
static bool is_willing(const struct pools *pools, struct gp_sleep_result *result)
{
	CUcontext seen[GP_CONTEXTS_SEEN_MAX];
	unsigned n_seen;

	gp_libraries_look();
	n_seen = gp_context_seen_all(seen);
	if (gp_context_why_shared())
		return fail(result, -ENOTSUP, "other work than that of this context may use the memory: %s",
			gp_context_why_shared());
	if (pools->n_contexts > 1 || n_seen != 1 || gp_slow_path_is_any(GP_SLOW_PATH_CURRENT))
		return fail(result, -ENOTSUP,
			"the process has more than one context, or contexts that gpupool does not see");
	if (gp_context_is(pools->context, GP_CONTEXT_DEAD | GP_CONTEXT_ENDING | GP_CONTEXT_BROKEN))
		return fail(result, -EIO, "the context has ended, or an error has made it unusable");
	if (gp_slow_path_is_any(GP_SLOW_PATH_LIBRARIES))
		return fail(result, -EBUSY, "the program is loading a library; try again");
	return true;
}

/* True if a thread of the program waits at the gate: then the sleep ends, and chunks that have moved move back. */
static bool is_awaited(void *unused)
{
	return atomic_load(&n_waiting) != 0;
}

static bool must_give_way(const struct pools *pools)
{
	return !pools->is_patient && is_awaited(NULL);
}

static bool fail_awaited(struct gp_sleep_result *result)
{
	return fail(result, -EBUSY, "busy: the program submits work; try again while it is idle");
}

/*
 * Waits until no submission is under way and the GPU is idle. The gate is closed. Gives up as soon as a thread waits at
 * the gate: the call or the kernel that this function waits for may itself wait for that thread.
 *
 * A capture keeps fences from being recorded. None begins while the gate is closed, since a capture begins as a visit.
 */
static bool quieten(const struct pools *pools, uint64_t end_ns, struct gp_sleep_result *result)
{
	unsigned attempt = 0;
	uint64_t seq;
	int r;

	while (!gp_submission_is_quiet(&gp_submitted)) {
		if (gp_submission_is_unseen(&gp_submitted))
			return fail(result, -ENOTSUP, "work may be submitted past gpupool");
		if (must_give_way(pools))
			return fail_awaited(result);
		if (!left_until(end_ns))
			return fail(result, -EBUSY,
				"busy: a call that submits work has not returned; try again, or with a "
				"longer --timeout");
		gp_clock_pause(NULL, attempt++);
	}
	if (must_give_way(pools))
		return fail_awaited(result);
	if (!gp_capture_is_none())
		return fail(result, -EBUSY, "busy: a stream captures; try again later");
	r = gp_pool_grace_begin(pools->pools[0], &seq);
	if (r)
		return fail(result, -EIO, "the driver refused to record a fence: error %d", r);
	for (attempt = 0; !gp_pool_grace_is_over(pools->pools[0], seq); attempt++) {
		if (gp_context_is(pools->context, GP_CONTEXT_DEAD | GP_CONTEXT_BROKEN))
			return fail(result, -EIO, "the context has ended, or an error has made it unusable");
		if (must_give_way(pools))
			return fail_awaited(result);
		if (!left_until(end_ns))
			return fail(result, -EBUSY,
				"busy: the GPU has not finished its work; try again, or with a longer "
				"--timeout");
		gp_clock_pause(NULL, attempt);
	}
	return true;
}

static bool has_host_memory(const struct gp_sleep_bytes *bytes, struct gp_sleep_result *result)
{
	uint64_t bound = gp_state.config.sleep_host_bytes, left, kept, needed;

	(void)gp_sleep_host_bytes(&kept);
	needed = bytes->host_bytes - gp_min(kept, bytes->host_bytes);
	left = gp_memory_left("");
	if (bound && bytes->host_bytes > bound)
		return fail(result, -ENOMEM,
			"short of host memory: the content takes %" PRIu64
			" MiB, and GPUPOOL_SLEEP_HOST allows %" PRIu64 " MiB",
			bytes->host_bytes / GP_MIB, bound / GP_MIB);
	if (needed > left)
		return fail(result, -ENOMEM,
			"short of host memory: the content takes %" PRIu64 " MiB, and the machine or the control group "
			"has %" PRIu64 " MiB left",
			needed / GP_MIB, left / GP_MIB);
	return true;
}

static void leave(struct pools *pools)
{
	for (int i = 0; i < pools->n; i++) {
		if (pools->is_entered[i])
			gp_pool_sleep_leave(pools->pools[i]);
		pools->is_entered[i] = false;
	}
}

static int enter(struct pools *pools, uint64_t end_ns)
{
	int r = 0;

	for (int i = 0; i < pools->n && !r; i++) {
		r = gp_pool_sleep_enter(pools->pools[i], left_until(end_ns));
		pools->is_entered[i] = !r;
	}
	return r;
}

/* Gets everything ready, so that only the driver can make the move fail. */
static bool prepare(struct pools *pools, uint64_t end_ns, struct gp_sleep_result *result)
{
	struct gp_sleep_bytes all = {0}, bytes;
	int r = enter(pools, end_ns);

	for (int i = 0; i < pools->n && !r; i++) {
		r = gp_pool_sleep_survey(pools->pools[i], &bytes);
		if (r)
			break;
		all.device_bytes += bytes.device_bytes;
		all.host_bytes += bytes.host_bytes;
		all.shared_bytes += bytes.shared_bytes;
		all.stuck_bytes += bytes.stuck_bytes;
	}
	if (r == -EAGAIN)
		return fail(result, -EBUSY, "busy: a thread maps, unmaps or exports memory; try again");
	if (r == GP_E_DEAD)
		return fail(result, -EIO, "the context has ended");
	if (r)
		return fail(result, -ENOMEM, "short of host memory");
	if (all.shared_bytes)
		return fail(result, -ENOTSUP,
			"%" PRIu64 " MiB were exported to other processes, or belong to an invalidated region",
			all.shared_bytes / GP_MIB);
	if (all.stuck_bytes)
		return fail(
			result, -ENOTSUP, "the driver has refused to unmap %" PRIu64 " MiB", all.stuck_bytes / GP_MIB);
	if (!has_host_memory(&all, result))
		return false;
	for (int i = 0; i < pools->n && !r; i++)
		r = gp_pool_sleep_take_host(pools->pools[i]);
	/* Kept memory that fits no chunk would stay for good. */
	gp_sleep_host_trim(pools->context);
	if (r == -ENOMEM)
		return fail(result, -ENOMEM, "short of host memory: %" PRIu64 " MiB could not be pinned",
			all.host_bytes / GP_MIB);
	if (r)
		return fail(result, -EIO, "the driver refused to pin host memory: error %d", r);
	result->device_bytes = all.device_bytes;
	result->host_bytes = all.host_bytes;
	return true;
}

/* Counts what is asleep. */
static struct gp_sleep_bytes count(const struct pools *pools)
{
	struct gp_sleep_bytes all = {0};

	for (int i = 0; i < pools->n; i++) {
		struct gp_sleep_bytes bytes = gp_pool_asleep(pools->pools[i]);

		all.device_bytes += bytes.device_bytes;
		all.host_bytes += bytes.host_bytes;
	}
	return all;
}

static void open_gate(void)
{
	atomic_store(&since_ns, 0);
	atomic_fetch_and(&gp_slow_path, ~(unsigned)GP_SLOW_PATH_ASLEEP);
	atomic_store(&state, GP_SLEEP_AWAKE);
	gp_submission_open(&gp_submitted);
}

/* Results of an attempt to wake. */
enum attempt {
	WOKEN,
	SHORT, /* of device memory: another attempt may succeed */
	LOST,  /* the context has ended or broken: nothing can come back, and the driver refuses the program's work */
	REFUSED
};

static bool is_lost(const struct pools *pools)
{
	return gp_slow_path_is_any(GP_SLOW_PATH_BYPASS) ||
	       gp_context_is(pools->context, GP_CONTEXT_DEAD | GP_CONTEXT_BROKEN);
}

/* Takes the device memory of all pools, and then moves all in; or holds none of it. */
static enum attempt try_to_wake(struct pools *pools, int *ret_error)
{
	int r = enter(pools, UINT64_MAX);

	for (int i = 0; i < pools->n && !r; i++)
		r = gp_pool_sleep_take_device(pools->pools[i]);
	for (int i = 0; i < pools->n && !r; i++)
		r = gp_pool_sleep_move_in(pools->pools[i]);
	for (int i = 0; r && i < pools->n; i++)
		if (pools->is_entered[i])
			gp_pool_sleep_return_device(pools->pools[i]);
	if (r > 0 && r < GP_E_FOREIGN)
		(void)gp_driver_result(pools->context, (CUresult)r);
	leave(pools);
	*ret_error = r;
	if (!r)
		return WOKEN;
	if (r == GP_E_DEAD || is_lost(pools))
		return LOST;
	return r == -ENOMEM ? SHORT : REFUSED;
}

/*
 * Wakes the pools, and waits for device memory until end_ns. The process stays asleep meanwhile and holds none of it,
 * so that two processes that wake at the same time do not wait for each other.
 */
static bool wake(struct pools *pools, uint64_t end_ns, struct gp_sleep_result *result)
{
	uint64_t bytes = count(pools).device_bytes, log_ns = 0, ask_ns = 0;
	enum attempt attempt;
	int error = 0;

	for (unsigned n = 0;; n++) {
		attempt = try_to_wake(pools, &error);
		if (attempt == WOKEN || attempt == LOST)
			break;
		if (gp_clock_now_ns(NULL) >= log_ns) {
			if (attempt == SHORT)
				gp_log(GP_LOG_WARN,
					"waking: waiting for %" PRIu64
					" MiB of device memory, which other processes have taken",
					bytes / GP_MIB);
			else
				gp_log(GP_LOG_WARN, "waking: the driver refused the memory with error %d; trying again",
					error);
			log_ns = gp_clock_now_ns(NULL) + LOG_NS;
		}
		if (!left_until(end_ns) && attempt == SHORT)
			return fail(result, -ENOMEM,
				"short of device memory: %" PRIu64 " MiB are needed in all; the process stays asleep",
				bytes / GP_MIB);
		if (!left_until(end_ns))
			return fail(result, -EIO,
				"the driver refused the memory with error %d; the process stays asleep", error);
		if (gp_clock_now_ns(NULL) >= ask_ns) {
			gp_pool_sleep_ask(pools->pools[0], bytes);
			ask_ns = gp_clock_now_ns(NULL) + ASK_NS;
		} else {
			gp_clock_pause(NULL, n);
		}
	}
	if (attempt == LOST)
		gp_log(GP_LOG_WARN, "waking: the context has ended; %" PRIu64 " MiB that were asleep are lost",
			bytes / GP_MIB);
	return true;
}

/* Moves the memory out. After a failure it is back, and the gate open. */
static bool move_out(struct pools *pools, struct gp_sleep_result *result)
{
	struct gp_sleep_result undone;
	int r = 0;

	atomic_store(&device_asleep, pools->context->device->index);
	atomic_store(&state, GP_SLEEP_MOVING);
	for (int i = 0; i < pools->n && !r; i++)
		r = gp_pool_sleep_move_out(pools->pools[i], is_awaited, NULL);
	if (r > 0 && r < GP_E_FOREIGN)
		(void)gp_driver_result(pools->context, (CUresult)r);
	leave(pools);
	if (!r)
		return true;
	atomic_store(&state, GP_SLEEP_WAKING);
	(void)wake(pools, UINT64_MAX, &undone);
	if (r == -ECANCELED)
		return fail(result, -EBUSY, "the program has submitted work meanwhile");
	if (r == GP_E_DEAD)
		return fail(result, -EIO, "the context has ended");
	return fail(result, -EIO, "the driver refused to move memory: error %d", r);
}

static void fall_asleep(void)
{
	atomic_store(&since_ns, gp_clock_now_ns(NULL));
	atomic_fetch_or(&gp_slow_path, GP_SLOW_PATH_ASLEEP);
	atomic_fetch_add(&n_sleeps, 1);
	atomic_store(&state, GP_SLEEP_ASLEEP);
}

static void reclaim(void *unused, struct gp_pool *pool)
{
	(void)gp_pool_reclaim(pool);
}

static bool sleep_alone(struct pools *pools, uint64_t end_ns, struct gp_sleep_result *result)
{
	bool is_asleep;

	if (!is_able(pools, result) || !is_willing(pools, result))
		return false;
	atomic_store(&state, GP_SLEEP_CLOSING);
	gp_submission_close(&gp_submitted);
	is_asleep = quieten(pools, end_ns, result) && is_willing(pools, result);
	if (is_asleep)
		gp_context_each_pool(pools->context, reclaim, NULL);
	is_asleep = is_asleep && prepare(pools, end_ns, result);
	is_asleep = is_asleep && move_out(pools, result);
	leave(pools);
	if (is_asleep)
		fall_asleep();
	else
		open_gate();
	return is_asleep;
}

bool gp_sleep(uint64_t timeout_ns, struct gp_sleep_result *ret_result)
{
	uint64_t start_ns = gp_clock_now_ns(NULL), end_ns = deadline(timeout_ns);
	struct pools pools;
	int cancel_state;
	bool is_asleep;

	*ret_result = (struct gp_sleep_result){0};
	if (!begin(end_ns, &cancel_state))
		return fail(
			ret_result, -EBUSY, "busy: another thread wakes the process, or puts it to sleep; try again");
	is_asleep = ret_result->was_so = atomic_load(&state) == GP_SLEEP_ASLEEP;
	if (!is_asleep) {
		collect(&pools);
		is_asleep = sleep_alone(&pools, end_ns, ret_result);
		put(&pools);
	}
	end(cancel_state);
	ret_result->ns = gp_clock_now_ns(NULL) - start_ns;
	if (is_asleep && !ret_result->was_so)
		gp_log(GP_LOG_INFO, "asleep: %" PRIu64 " MiB of device memory have gone back to the driver",
			ret_result->device_bytes / GP_MIB);
	return is_asleep;
}

/* The process stays awake: threads at the gate go on once the lock is free. */
static bool call_quietly(struct pools *pools, uint64_t end_ns,
	void (*fn)(void *arg, struct gp_pool *const *pools, unsigned n), void *arg, struct gp_sleep_result *result)
{
	bool is_quiet;
	int r;

	if (!is_able(pools, result) || !is_willing(pools, result))
		return false;
	gp_submission_close(&gp_submitted);
	is_quiet = quieten(pools, end_ns, result) && is_willing(pools, result);
	r = is_quiet ? enter(pools, end_ns) : 0;
	if (is_quiet && r)
		is_quiet = fail(result, -EBUSY, "busy: a thread maps, unmaps or exports memory; try again");
	if (is_quiet)
		fn(arg, pools->pools, (unsigned)pools->n);
	leave(pools);
	gp_submission_open(&gp_submitted);
	return is_quiet;
}

bool gp_sleep_quietly(uint64_t timeout_ns, void (*fn)(void *arg, struct gp_pool *const *pools, unsigned n), void *arg,
	struct gp_sleep_result *ret_result)
{
	uint64_t end_ns = deadline(timeout_ns);
	struct pools pools;
	int cancel_state;
	bool is_quiet;

	*ret_result = (struct gp_sleep_result){0};
	if (!begin(end_ns, &cancel_state))
		return fail(ret_result, -EBUSY, "busy: another thread moves memory");
	collect(&pools);
	pools.is_patient = true;
	is_quiet = atomic_load(&state) == GP_SLEEP_AWAKE || fail(ret_result, -EBUSY, "the process is asleep");
	is_quiet = is_quiet && call_quietly(&pools, end_ns, fn, arg, ret_result);
	put(&pools);
	end(cancel_state);
	return is_quiet;
}

/* Wakes the process, as the only thread. */
static bool wake_alone(uint64_t end_ns, struct gp_sleep_result *result)
{
	struct gp_sleep_bytes bytes;
	struct pools pools;
	bool is_awake;

	collect(&pools);
	bytes = count(&pools);
	result->device_bytes = bytes.device_bytes;
	result->host_bytes = bytes.host_bytes;
	atomic_store(&state, GP_SLEEP_WAKING);
	/* Without a pool, the context has ended, and its memory with it. */
	is_awake = !pools.context || wake(&pools, end_ns, result);
	if (is_awake) {
		atomic_fetch_add(&n_wakes, 1);
		open_gate();
	} else {
		atomic_store(&state, GP_SLEEP_ASLEEP);
	}
	put(&pools);
	return is_awake;
}

bool gp_wake(uint64_t timeout_ns, struct gp_sleep_result *ret_result)
{
	uint64_t start_ns = gp_clock_now_ns(NULL), end_ns = deadline(timeout_ns);
	int cancel_state;
	bool is_awake;

	*ret_result = (struct gp_sleep_result){0};
	if (!begin(end_ns, &cancel_state))
		return fail(ret_result, -EBUSY, "busy: another thread wakes the process, or puts it to sleep");
	is_awake = ret_result->was_so = atomic_load(&state) != GP_SLEEP_ASLEEP;
	if (!is_awake)
		is_awake = wake_alone(end_ns, ret_result);
	end(cancel_state);
	ret_result->ns = gp_clock_now_ns(NULL) - start_ns;
	return is_awake;
}

/* A thread of the program stands at the closed gate. */
static bool wake_for_work(void)
{
	struct gp_sleep_result result;
	int cancel_state;

	if (is_mover)
		return false;
	atomic_fetch_add(&n_waiting, 1);
	gp_mutex_lock(&lock);
	own(&cancel_state);
	if (atomic_load(&state) == GP_SLEEP_ASLEEP)
		(void)wake_alone(UINT64_MAX, &result);
	end(cancel_state);
	atomic_fetch_sub(&n_waiting, 1);
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
	uint64_t since = atomic_load(&since_ns);
	struct gp_sleep_status status = {
		.state = atomic_load(&state),
		.since_ns = since ? gp_clock_now_ns(NULL) - since : 0,
		.n_sleeps = atomic_load(&n_sleeps),
		.n_wakes = atomic_load(&n_wakes),
	};
	struct gp_sleep_bytes bytes;
	struct pools pools;

	(void)gp_sleep_host_bytes(&status.kept_bytes);
	collect(&pools);
	bytes = count(&pools);
	put(&pools);
	status.device_bytes = bytes.device_bytes;
	status.host_bytes = bytes.host_bytes;
	return status;
}

uint64_t gp_sleep_bytes_of(int device)
{
	return atomic_load(&state) != GP_SLEEP_AWAKE && atomic_load(&device_asleep) == device
		       ? gp_sleep_status().device_bytes
		       : 0;
}

/* The child's calls go to the driver, which refuses them. */
static void reset_in_child(void)
{
	gp_mutex_init(&lock, GP_RANK_SLEEP);
	is_mover = false;
	atomic_store(&n_waiting, 0);
	atomic_store(&gp_submitted.n_visits, 0);
	open_gate();
}

void gp_sleep_start(void)
{
	static const struct gp_fork_child child = {.fn = reset_in_child};
	static struct gp_context_watcher watcher = {.after_end = gp_sleep_host_trim};

	gp_fork_on_child(&child);
	gp_context_watch(&watcher);
	gp_submit_on_closed(wake_for_work);
}
