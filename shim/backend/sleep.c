/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "sleep.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>

#include "backend_sleep.h"
#include "deep.h"
#include "sleepers.h"
#include "pool/pool_control.h"
#include "shim/base/clock.h"
#include "shim/base/fork.h"
#include "shim/base/log.h"
#include "shim/base/memory_left.h"
#include "shim/base/own_thread.h"
#include "shim/base/slow_path.h"
#include "shim/context/adopt.h"
#include "shim/context/capture.h"
#include "shim/context/context.h"
#include "shim/context/kept.h"
#include "shim/context/driver_call.h"
#include "shim/context/libraries.h"
#include "shim/context/serial.h"
#include "shim/debug/debug.h"
#include "shim/driver/driver_table.h"
#include "shim/driver/submit.h"
#include "shim/record/record.h"

/* A process that waits for device memory says so, and asks others for memory, at these intervals. */
#define LOG_NS UINT64_C(5000000000)
#define ASK_NS UINT64_C(500000000)

/* The thread that unpins pauses while another one wants to wake the process: it would take the lock again first. */
#define UNPIN_PAUSE_NS UINT64_C(1000000)

/* One thread at a time puts the process to sleep or wakes it. It holds this for as long as that takes. */
static struct gp_mutex lock = GP_MUTEX_INIT(GP_RANK_SLEEP);
static _Thread_local bool is_mover __attribute__((tls_model("initial-exec"))); /* this thread holds it */

static _Atomic enum gp_sleep_state state;
static _Atomic unsigned n_waiting; /* threads at the gate */
static _Atomic unsigned n_wakers;  /* threads that are asked to wake the process */
static _Atomic bool is_unpinning;  /* the thread that holds the lock unpins host memory */
static _Atomic uint64_t since_ns, deep_since_ns, n_sleeps, n_wakes;
static struct gp_sleepers sleepers; /* for the thread that holds the lock, as the next */
static bool is_undoing;             /* the sleep has failed after some of the memory was away */
static bool is_patient;             /* threads at the gate wait until the time is up */

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

/* Cancellation and signals that the thread that holds the lock has put off. */
struct hold {
	int cancel_state;
	sigset_t signals; /* the thread's mask before */
};

static sigset_t program_signals; /* the same, for that thread */

/*
 * A thread that was cancelled inside the driver would leave the gate closed. A handler of the program that calls exit()
 * would find the memory away, with this thread at work on it. So signals wait until the memory is in one place.
 */
static void block_signals(sigset_t *ret_before)
{
	static const int at_once[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS};
	sigset_t all;

	sigfillset(&all);
	for (size_t i = 0; i < sizeof(at_once) / sizeof(*at_once); i++)
		sigdelset(&all, at_once[i]);
	(void)sigprocmask(SIG_BLOCK, &all, ret_before);
}

static void own(struct hold *hold)
{
	is_mover = true;
	program_signals = hold->signals;
	(void)pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &hold->cancel_state);
}

/*
 * Begins a sleep or a wake, as the only thread. False if another thread is not done with one in time. For a thread that
 * unpins a piece of host memory, which takes some milliseconds, it waits even if the time is up.
 */
static bool begin(uint64_t end_ns, struct hold *hold)
{
	for (unsigned attempt = 0;; attempt++) {
		block_signals(&hold->signals);
		if (gp_mutex_try(&lock))
			break;
		(void)sigprocmask(SIG_SETMASK, &hold->signals, NULL);
		if (!left_until(end_ns) && !atomic_load(&is_unpinning))
			return false;
		gp_clock_pause(NULL, attempt);
	}
	own(hold);
	return true;
}

static void end(const struct hold *hold)
{
	is_mover = false;
	gp_mutex_unlock(&lock);
	(void)pthread_setcancelstate(hold->cancel_state, NULL);
	(void)sigprocmask(SIG_SETMASK, &hold->signals, NULL);
}

static bool is_ignored(int signal, void (*handler)(int))
{
	return handler == SIG_IGN || (handler == SIG_DFL && (signal == SIGCHLD || signal == SIGCONT ||
								    signal == SIGURG || signal == SIGWINCH));
}

/*
 * Delivers signals that end or stop the process. Nothing waits for a process that ends, and its memory ends with it.
 * Returns true if the program has a handler for another signal that has come.
 */
static bool deliver_signals(void)
{
	bool has_handler = false;
	sigset_t pending, one;

	if (sigpending(&pending))
		return false;
	for (int signal = 1; signal < NSIG; signal++) {
		struct sigaction action;

		if (sigismember(&pending, signal) != 1 || sigismember(&program_signals, signal) ||
			sigaction(signal, NULL, &action) || is_ignored(signal, action.sa_handler))
			continue;
		if (action.sa_handler != SIG_DFL) {
			has_handler = true;
			continue;
		}
		sigemptyset(&one);
		sigaddset(&one, signal);
		(void)sigprocmask(SIG_UNBLOCK, &one, NULL);
		(void)sigprocmask(SIG_BLOCK, &one, NULL);
	}
	return has_handler;
}

/* Memory of other kinds does not sleep. It may belong to the cache of a context only in which nothing was allocated. */
static const struct gp_sleeper *other_kind(void)
{
	for (unsigned i = 0; i < sleepers.n_pools; i++) {
		struct gp_stats stats;

		if (sleepers.pools[i].context->regions.kind == GP_KIND_VMM)
			continue;
		gp_pool_stats(sleepers.pools[i].pool, &stats);
		if (stats.total_bytes)
			return &sleepers.pools[i];
	}
	return NULL;
}

/* Reasons that hold for the process for good, or until the user changes a setting. */
static bool is_able(struct gp_sleep_result *result)
{
	const char *unseen = gp_serial_why_unseen();
	const struct gp_sleeper *other = other_kind();

	if (gp_slow_path_is_any(GP_SLOW_PATH_BYPASS | GP_SLOW_PATH_END))
		return fail(result, -ENOTSUP, "the process is ending");
	if (!sleepers.n_contexts)
		return fail(result, -ENOTSUP, "the process has no pooled memory");
	if (other)
		return fail(result, -ENOTSUP,
			"only memory of the pool type vmm can sleep, and this is %s; start the program with "
			"GPUPOOL_POOL=vmm",
			gp_kind_name(other->context->regions.kind));
	if (gp_debug_is_on())
		return fail(result, -ENOTSUP, "GPUPOOL_DEBUG watches the memory; start the program without it");
	if (!gp_sleep_backend_works() || !gp_real.cuCtxRecordEvent || !gp_real.cuCtxWaitEvent)
		return fail(result, -ENOTSUP, "the driver lacks functions that a sleep needs");
	if (unseen || gp_submission_is_unseen(&gp_submitted))
		return fail(result, -ENOTSUP, "work may be submitted past gpupool: %s", unseen ? unseen : "a lookup");
	if (gp_real_why_unexamined())
		return fail(result, -ENOTSUP, "calls may reach the driver past gpupool: %s", gp_real_why_unexamined());
	return true;
}

/* Reasons that the program may cause at any time. Asked again once the gate is closed. */
static bool is_willing(struct gp_sleep_result *result)
{
	gp_libraries_look();
	if (gp_context_why_shared())
		return fail(result, -ENOTSUP, "other work than that of this process may use the memory: %s",
			gp_context_why_shared());
	if (gp_slow_path_is_any(GP_SLOW_PATH_CONTEXTS))
		return fail(result, -ENOTSUP, "the process may have contexts that gpupool does not see");
	for (unsigned i = 0; i < sleepers.n_contexts; i++)
		if (gp_context_is(sleepers.contexts[i], GP_CONTEXT_DEAD | GP_CONTEXT_ENDING | GP_CONTEXT_BROKEN))
			return fail(result, -EIO, "a context has ended, or an error has made it unusable");
	if (gp_slow_path_is_any(GP_SLOW_PATH_LIBRARIES))
		return fail(result, -EBUSY, "the program is loading a library; try again");
	return true;
}

/*
 * Collects all contexts that the program can work in. In those without memory, too, work may use the memory of others,
 * so each needs fences. One that the program creates later has no work as long as the gate is closed.
 */
static bool collect_all(struct gp_sleep_result *result)
{
	CUcontext seen[GP_CONTEXTS_SEEN_MAX];
	unsigned n = gp_context_seen_all(seen);
	bool is_complete = n != 0;

	for (unsigned i = 0; i < n; i++)
		is_complete &= gp_context_adopt(seen[i]);
	gp_sleepers_put(&sleepers);
	gp_sleepers_collect(&sleepers);
	if (!n || sleepers.is_too_many)
		return fail(result, -ENOTSUP, "the process has too many contexts or regions");
	if (!is_complete)
		return fail(result, -EBUSY, "busy: a context ends or begins; try again");
	return true;
}

/* True if a thread of the program waits at the gate: then the sleep ends, and chunks that have moved move back. */
static bool is_awaited(void *unused)
{
	(void)deliver_signals();
	return atomic_load(&n_waiting) != 0;
}

static bool must_give_way(void)
{
	return is_awaited(NULL) && !is_patient;
}

static bool fail_awaited(struct gp_sleep_result *result)
{
	return fail(result, -EBUSY, "busy: the program submits work; try again while it is idle");
}

/*
 * Waits until no submission is under way. Gives up as soon as a thread waits at the gate: the call that this function
 * waits for may itself wait for that thread.
 */
static bool await_submissions(uint64_t end_ns, struct gp_sleep_result *result)
{
	for (unsigned attempt = 0; !gp_submission_is_quiet(&gp_submitted); attempt++) {
		if (gp_submission_is_unseen(&gp_submitted))
			return fail(result, -ENOTSUP, "work may be submitted past gpupool");
		if (deliver_signals())
			return fail(result, -EINTR, "a signal came");
		if (must_give_way())
			return fail_awaited(result);
		if (!left_until(end_ns))
			return fail(result, -EBUSY,
				"busy: a call that submits work has not returned; try again, or with a "
				"longer --timeout");
		gp_clock_pause(NULL, attempt);
	}
	return !must_give_way() || fail_awaited(result);
}

/* Waits for the fence of one context, likewise. */
static bool await_fence(struct gp_context *context, uint64_t fence, uint64_t end_ns, struct gp_sleep_result *result)
{
	for (unsigned attempt = 0; !gp_pool_grace_is_over(context->pool, fence); attempt++) {
		if (gp_sleepers_is_lost(context))
			return fail(result, -EIO, "a context has ended, or an error has made it unusable");
		if (deliver_signals())
			return fail(result, -EINTR, "a signal came");
		if (must_give_way())
			return fail_awaited(result);
		if (!left_until(end_ns))
			return fail(result, -EBUSY,
				"busy: the GPU has not finished its work; try again, or with a longer "
				"--timeout");
		gp_clock_pause(NULL, attempt);
	}
	return true;
}

/*
 * Waits until no submission is under way and the GPU is idle. The gate is closed. All fences are recorded before the
 * first one is awaited: work of one context may wait for work of another.
 *
 * A capture keeps fences from being recorded. None begins while the gate is closed, since a capture begins as a visit.
 */
static bool quieten(uint64_t end_ns, struct gp_sleep_result *result)
{
	if (!await_submissions(end_ns, result) || !collect_all(result))
		return false;
	if (!gp_capture_is_none())
		return fail(result, -EBUSY, "busy: a stream captures; try again later");
	for (unsigned i = 0; i < sleepers.n_contexts; i++) {
		int r = gp_pool_grace_begin(sleepers.contexts[i]->pool, &sleepers.fences[i]);

		if (r)
			return fail(result, -EIO, "the driver refused to record a fence: error %d", r);
	}
	for (unsigned i = 0; i < sleepers.n_contexts; i++)
		if (!await_fence(sleepers.contexts[i], sleepers.fences[i], end_ns, result))
			return false;
	return true;
}

/* Looks ahead, so that most sleeps that lack host memory fail before any is taken. */
static bool has_host_memory(const struct gp_sleep_bytes *bytes, struct gp_sleep_result *result)
{
	uint64_t bound = gp_state.config.sleep_host_bytes, left = gp_memory_left("", GP_MEMORY_FOR_USER);
	uint64_t kept, needed;

	(void)gp_sleep_host_bytes(&kept);
	needed = bytes->mapped_bytes - gp_min(kept, bytes->mapped_bytes);
	if (bound && bytes->mapped_bytes > bound)
		return fail(result, -ENOMEM,
			"short of host memory: the content takes %" PRIu64
			" MiB, and GPUPOOL_SLEEP_HOST allows %" PRIu64 " MiB",
			bytes->mapped_bytes / GP_MIB, bound / GP_MIB);
	if (needed > left)
		return fail(result, -ENOMEM,
			"short of host memory: the content takes %" PRIu64 " MiB, and the machine or the control group "
			"has %" PRIu64 " MiB left",
			needed / GP_MIB, left / GP_MIB);
	return true;
}

/* Gets everything ready, so that only the driver can make the move fail. */
static bool prepare(const struct gp_sleepers_drops *drops, uint64_t end_ns, struct gp_sleep_result *result)
{
	struct gp_sleep_bytes all = {0};
	int r = gp_sleepers_enter(&sleepers, end_ns);

	if (!r)
		r = gp_sleepers_survey(&sleepers, drops, &all);
	if (r == -EAGAIN)
		return fail(result, -EBUSY, "busy: a thread maps, unmaps or exports memory; try again");
	if (r == GP_E_DEAD)
		return fail(result, -EIO, "a context has ended");
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
	gp_sleepers_learn(&sleepers);
	r = gp_sleepers_take_host(&sleepers, is_awaited, NULL);
	/* Kept memory that fits no chunk would stay for good. */
	for (unsigned i = 0; i < sleepers.n_contexts; i++)
		gp_sleep_host_trim(sleepers.contexts[i]);
	if (r == -ECANCELED)
		return fail_awaited(result);
	if (r == -ENOMEM)
		return fail(result, -ENOMEM, "short of host memory: %" PRIu64 " MiB could not be pinned",
			all.mapped_bytes / GP_MIB);
	if (r)
		return fail(result, -EIO, "the driver refused to pin host memory: error %d", r);
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
	gp_submission_open(&gp_submitted);
}

/* Results of an attempt to wake. */
enum attempt {
	WOKEN,
	SHORT, /* of device memory: another attempt may succeed */
	REFUSED
};

/*
 * Takes the device memory of all pools, and then moves all in; or holds none of it. A context that has ended or broken
 * is left out: its memory cannot come back, and the driver refuses the program's work itself.
 */
static enum attempt try_to_wake(int *ret_error)
{
	unsigned n_lost;
	int r;

	do {
		n_lost = gp_sleepers_lost(&sleepers);
		r = gp_sleepers_enter(&sleepers, UINT64_MAX);
		if (!r)
			r = gp_sleepers_take_device(&sleepers);
		if (!r)
			r = gp_sleepers_move_in(&sleepers);
		if (r)
			gp_sleepers_return_device(&sleepers);
		gp_sleepers_leave(&sleepers);
		/* A context that has ended or broken meanwhile is left out from now on. */
	} while (r && gp_sleepers_lost(&sleepers) != n_lost);
	*ret_error = r;
	if (!r || gp_slow_path_is_any(GP_SLOW_PATH_BYPASS))
		return WOKEN;
	return r == -ENOMEM ? SHORT : REFUSED;
}

/* A wait for device memory. */
struct wait {
	enum attempt attempt; /* the last result */
	int error;
	uint64_t bytes;
	uint64_t log_ns, ask_ns; /* when to log, and to ask others for memory, the next time */
};

static void log_wait(const struct wait *wait)
{
	if (wait->attempt == SHORT)
		gp_log(GP_LOG_WARN,
			"waking: waiting for %" PRIu64 " MiB of device memory, which other processes have taken",
			wait->bytes / GP_MIB);
	else
		gp_log(GP_LOG_WARN, "waking: the driver refused the memory with error %d; trying again", wait->error);
}

/* Makes an attempt to wake, as the only thread. After a failure the process is asleep, and holds no device memory. */
static bool wake_alone(struct wait *wait, struct gp_sleep_result *result)
{
	struct gp_sleep_bytes bytes = gp_sleepers_asleep(-1);
	uint64_t lost;

	gp_sleepers_collect(&sleepers);
	result->device_bytes = wait->bytes = bytes.device_bytes;
	result->dropped_bytes = bytes.dropped_bytes;
	result->host_bytes = bytes.host_bytes;
	atomic_store(&state, GP_SLEEP_WAKING);
	wait->attempt = try_to_wake(&wait->error);
	if (wait->attempt == WOKEN) {
		lost = gp_sleepers_lost_bytes(&sleepers);
		if (lost)
			gp_log(GP_LOG_WARN, "waking: a context is unusable; %" PRIu64 " MiB that were asleep are lost",
				lost / GP_MIB);
		atomic_fetch_add(&n_wakes, !is_undoing);
		open_gate();
	} else {
		atomic_store(&state, GP_SLEEP_ASLEEP);
		if (gp_clock_now_ns(NULL) >= wait->ask_ns) {
			gp_sleepers_ask(&sleepers);
			wait->ask_ns = gp_clock_now_ns(NULL) + ASK_NS;
		}
	}
	gp_sleepers_put(&sleepers);
	return wait->attempt == WOKEN;
}

/* Pauses between two attempts. The thread holds nothing, so signals are delivered and other threads may do the same. */
static void pause_wake(struct wait *wait, unsigned attempt)
{
	if (gp_clock_now_ns(NULL) >= wait->log_ns) {
		log_wait(wait);
		wait->log_ns = gp_clock_now_ns(NULL) + LOG_NS;
	}
	gp_clock_pause(NULL, attempt);
}

static bool fail_wake(const struct wait *wait, struct gp_sleep_result *result)
{
	if (wait->attempt == SHORT)
		return fail(result, -ENOMEM,
			"short of device memory: %" PRIu64 " MiB are needed in all; the process stays asleep",
			wait->bytes / GP_MIB);
	return fail(result, -EIO, "the driver refused the memory with error %d; the process stays asleep", wait->error);
}

/*
 * Wakes the process, and waits for device memory until end_ns. The process stays asleep meanwhile and holds none of it,
 * so that two processes that wake at the same time do not wait for each other.
 */
static bool wake(uint64_t end_ns, struct gp_sleep_result *result)
{
	struct wait wait = {.attempt = SHORT};
	struct hold hold;
	bool is_awake, is_deep;

	atomic_fetch_add(&n_wakers, 1);
	for (unsigned attempt = 0;; attempt++) {
		if (!begin(end_ns, &hold)) {
			is_awake = fail(result, -EBUSY, "busy: another thread wakes the process, or puts it to sleep");
			break;
		}
		is_awake = atomic_load(&state) != GP_SLEEP_ASLEEP;
		is_deep = gp_deep_is();
		if (is_awake && !attempt)
			result->was_so = true;
		if (!is_awake && !is_deep)
			is_awake = wake_alone(&wait, result);
		end(&hold);
		if (is_awake)
			break;
		if (is_deep) {
			is_awake = fail(result, -EBUSY, "the process is deep asleep: only gpupool-stat wake wakes it");
			break;
		}
		if (!left_until(end_ns)) {
			is_awake = fail_wake(&wait, result);
			break;
		}
		pause_wake(&wait, attempt);
	}
	atomic_fetch_sub(&n_wakers, 1);
	return is_awake;
}

/* Moves the memory out. After a failure some of it may be away. */
static bool move_out(struct gp_sleep_result *result)
{
	bool have_dropped;
	int r;

	atomic_store(&state, GP_SLEEP_MOVING);
	r = gp_sleepers_move_out(&sleepers, is_awaited, NULL);
	gp_sleepers_leave(&sleepers);
	have_dropped = gp_sleepers_have_dropped(&sleepers);
	if (!r)
		return true;
	if (have_dropped)
		return fail(result, -EIO,
			"the driver refused to move memory: error %d; the process is awake, and content that was to be "
			"dropped is lost",
			r);
	if (r == -ECANCELED)
		return fail(result, -EBUSY, "the program has submitted work meanwhile");
	if (r == GP_E_DEAD)
		return fail(result, -EIO, "a context has ended");
	return fail(result, -EIO, "the driver refused to move memory: error %d", r);
}

static void fall_asleep(void)
{
	atomic_store(&since_ns, gp_clock_now_ns(NULL));
	atomic_fetch_or(&gp_slow_path, GP_SLOW_PATH_ASLEEP);
	atomic_fetch_add(&n_sleeps, !is_undoing);
	atomic_store(&state, GP_SLEEP_ASLEEP);
}

static void reclaim_all(void)
{
	(void)gp_kept_trim(-1, UINT64_MAX);
	for (unsigned i = 0; i < sleepers.n_pools; i++) {
		gp_record(sleepers.pools[i].pool, RECLAIM, 0);
		(void)gp_pool_reclaim(sleepers.pools[i].pool);
	}
}

/*
 * Makes an attempt to sleep, as the only thread. After a failure in the move the process is asleep, too, since the
 * memory that is away has to come back as in any wake: is_undoing is set.
 */
static bool sleep_alone(const struct gp_sleepers_drops *drops, uint64_t end_ns, struct gp_sleep_result *result)
{
	bool is_ready, is_asleep;

	if (!is_able(result) || !is_willing(result))
		return false;
	atomic_store(&state, GP_SLEEP_CLOSING);
	gp_submission_close(&gp_submitted);
	is_ready = quieten(end_ns, result) && is_able(result) && is_willing(result);
	if (is_ready)
		reclaim_all();
	is_ready = is_ready && prepare(drops, end_ns, result);
	is_asleep = is_ready && move_out(result);
	gp_sleepers_leave(&sleepers);
	is_undoing = is_ready && !is_asleep;
	if (is_ready)
		fall_asleep();
	else
		open_gate();
	return is_asleep;
}

static bool fail_late(struct gp_sleep_result *result)
{
	return fail(result, -EBUSY, "the request came too late: this process did not run, or had others to answer");
}

static bool is_too_much_pinned(void)
{
	return gp_sleep_pinned_bytes() > gp_state.config.sleep_pinned_bytes;
}

/* Unpins one piece of host memory. False if the process is awake, deep asleep or ending, or little enough is pinned. */
static bool unpin_one(void)
{
	struct hold hold;
	bool is_any = false;

	if (gp_deep_is())
		return false;
	if (atomic_load(&n_waiting) || atomic_load(&n_wakers)) {
		gp_clock_sleep(UNPIN_PAUSE_NS);
		return !gp_slow_path_is_any(GP_SLOW_PATH_BYPASS | GP_SLOW_PATH_END);
	}
	(void)begin(UINT64_MAX, &hold);
	atomic_store(&is_unpinning, true);
	if (atomic_load(&state) == GP_SLEEP_ASLEEP && !gp_deep_is() && is_too_much_pinned() &&
		!gp_slow_path_is_any(GP_SLOW_PATH_BYPASS | GP_SLOW_PATH_END)) {
		gp_sleepers_collect(&sleepers);
		is_any = !gp_sleepers_enter(&sleepers, UINT64_MAX) && gp_sleepers_unpin(&sleepers);
		gp_sleepers_leave(&sleepers);
		gp_sleepers_put(&sleepers);
	}
	atomic_store(&is_unpinning, false);
	end(&hold);
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
	struct hold hold;
	bool is_asleep, has_to_wake;

	do {
		*result = (struct gp_sleep_result){0};
		if (!begin(end_ns, &hold))
			return fail(result, -EBUSY,
				"busy: another thread wakes the process, or puts it to sleep; try again");
		is_asleep = result->was_so = atomic_load(&state) == GP_SLEEP_ASLEEP;
		if (!is_asleep) {
			gp_sleepers_collect(&sleepers);
			is_asleep = sleep_alone(drops, end_ns, result);
			gp_sleepers_put(&sleepers);
		}
		has_to_wake = is_undoing && !result->was_so;
		end(&hold);
	} while (!is_asleep && result->error == -EINTR);
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
	uint64_t end_ns = gp_min(deadline(request->timeout_ns), before_ns);
	bool is_asleep;

	*ret_result = (struct gp_sleep_result){0};
	if (start_ns > before_ns)
		return fail_late(ret_result);
	is_asleep = fall_asleep_by(&request->drops, end_ns, ret_result);
	ret_result->ns = gp_clock_now_ns(NULL) - start_ns;
	if (is_asleep && !ret_result->was_so)
		gp_log(GP_LOG_INFO, "asleep: %" PRIu64 " MiB of device memory have gone back to the driver",
			ret_result->device_bytes / GP_MIB);
	return is_asleep;
}

/* Calls fn with the pools of the process. It stays awake: threads at the gate go on once the lock is free. */
static bool call_quietly(uint64_t end_ns, void (*fn)(void *arg, const struct gp_sleepers *sleepers), void *arg,
	struct gp_sleep_result *result)
{
	bool is_quiet;

	if (!is_able(result) || !is_willing(result))
		return false;
	gp_submission_close(&gp_submitted);
	is_quiet = quieten(end_ns, result) && is_able(result) && is_willing(result);
	if (is_quiet && gp_sleepers_enter(&sleepers, end_ns))
		is_quiet = fail(result, -EBUSY, "busy: a thread maps, unmaps or exports memory; try again");
	if (is_quiet)
		fn(arg, &sleepers);
	gp_sleepers_leave(&sleepers);
	gp_submission_open(&gp_submitted);
	return is_quiet;
}

bool gp_sleep_quietly(uint64_t timeout_ns, void (*fn)(void *arg, const struct gp_sleepers *sleepers), void *arg,
	struct gp_sleep_result *ret_result)
{
	uint64_t end_ns = deadline(timeout_ns);
	struct hold hold;
	bool is_quiet;

	/* A signal interrupts an attempt, and its handler runs between two of them. */
	do {
		*ret_result = (struct gp_sleep_result){0};
		if (!begin(end_ns, &hold))
			return fail(ret_result, -EBUSY, "busy: another thread moves memory");
		is_patient = true;
		gp_sleepers_collect(&sleepers);
		is_quiet = atomic_load(&state) == GP_SLEEP_AWAKE || fail(ret_result, -EBUSY, "the process is asleep");
		is_quiet = is_quiet && call_quietly(end_ns, fn, arg, ret_result);
		gp_sleepers_put(&sleepers);
		is_patient = false;
		end(&hold);
	} while (!is_quiet && ret_result->error == -EINTR);
	return is_quiet;
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
	is_awake = wake(deadline(timeout_ns), ret_result);
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
			needed += CONTEXT_HOST_BYTES + atomic_load(&gp_device_if_used(i)->unpooled_bytes);
	return needed <= left || fail(result, -ENOMEM,
					 "short of host memory: the driver may need %" PRIu64
					 " MiB, and the machine or the control group has %" PRIu64 " MiB left",
					 needed / GP_MIB, left / GP_MIB);
}

bool gp_deepen(struct gp_sleep_result *ret_result)
{
	struct hold hold;
	bool is_done;

	*ret_result = (struct gp_sleep_result){0};
	if (!begin(0, &hold))
		return fail(ret_result, -EBUSY, "busy: another thread wakes the process, or puts it to sleep");
	ret_result->was_so = gp_deep_is();
	if (atomic_load(&state) != GP_SLEEP_ASLEEP)
		is_done = fail(ret_result, -EBUSY, "the process is not asleep");
	else if (ret_result->was_so)
		is_done = true;
	else if (gp_deep_refused())
		is_done = fail(ret_result, -ENOTSUP, "the process has used %s, which the driver does not take out",
			gp_deep_refused());
	else
		is_done = has_host_memory_for_rest(ret_result);
	if (is_done && !ret_result->was_so) {
		atomic_store(&deep_since_ns, gp_clock_now_ns(NULL));
		gp_deep_begin();
	}
	end(&hold);
	return is_done;
}

static void surface(void)
{
	atomic_store(&deep_since_ns, 0);
	gp_deep_end();
}

bool gp_deep_undo(struct gp_sleep_result *ret_result)
{
	struct hold hold;

	*ret_result = (struct gp_sleep_result){0};
	if (!begin(0, &hold))
		return fail(ret_result, -EBUSY, "busy: another thread wakes the process, or puts it to sleep");
	ret_result->was_so = !gp_deep_is();
	if (!ret_result->was_so)
		surface();
	end(&hold);
	return true;
}

/*
 * A thread of the program stands at the closed gate. It waits for the thread that moves memory, if there is one, and
 * until the process is not deep asleep.
 */
static bool wake_for_work(void)
{
	struct wait wait = {.attempt = SHORT};
	struct gp_sleep_result result;
	struct hold hold;
	bool is_awake, is_deep;

	if (is_mover)
		return false;
	atomic_fetch_add(&n_waiting, 1);
	for (unsigned attempt = 0;; attempt++) {
		block_signals(&hold.signals);
		gp_mutex_lock(&lock);
		own(&hold);
		is_deep = gp_deep_is();
		is_awake = !is_deep && (atomic_load(&state) != GP_SLEEP_ASLEEP || wake_alone(&wait, &result));
		end(&hold);
		if (is_awake)
			break;
		if (is_deep)
			gp_deep_await();
		else
			pause_wake(&wait, attempt);
	}
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
	return atomic_load(&state) != GP_SLEEP_AWAKE ? gp_sleepers_asleep(device).device_bytes : 0;
}

/* The child's calls go to the driver, which refuses them. */
static void reset_in_child(void)
{
	gp_mutex_init(&lock, GP_RANK_SLEEP);
	is_mover = false;
	atomic_store(&n_waiting, 0);
	atomic_store(&n_wakers, 0);
	atomic_store(&is_unpinning, false);
	surface();
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
