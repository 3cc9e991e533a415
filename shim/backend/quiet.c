/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "quiet.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>

#include "backend_sleep.h"
#include "pool/pool_control.h"
#include "shim/base/clock.h"
#include "shim/base/fork.h"
#include "shim/base/slow_path.h"
#include "shim/context/adopt.h"
#include "shim/context/capture.h"
#include "shim/context/libraries.h"
#include "shim/context/serial.h"
#include "shim/debug/debug.h"
#include "shim/driver/driver_table.h"
#include "shim/driver/submit.h"

/* One thread at a time moves memory. It holds this for as long as that takes. */
static struct gp_mutex lock = GP_MUTEX_INIT(GP_RANK_QUIET);
static _Thread_local bool is_mover __attribute__((tls_model("initial-exec"))); /* this thread holds it */
/* For the thread that holds it. */
static struct gp_sleepers sleepers;
static sigset_t program_signals; /* its mask before */
static bool is_patient;          /* threads at the gate do not make it give up before its time is up */

static _Atomic unsigned n_waiting; /* threads at the gate */
static _Atomic bool is_brief;      /* the lock will be free in some milliseconds */

bool gp_quiet_refuse(struct gp_quiet_refusal *ret_refusal, int error, const char *format, ...)
{
	va_list args;

	ret_refusal->error = error;
	va_start(args, format);
	vsnprintf(ret_refusal->why, sizeof(ret_refusal->why), format, args);
	va_end(args);
	return false;
}

uint64_t gp_quiet_left(uint64_t end_ns)
{
	uint64_t now_ns = gp_clock_now_ns(NULL);

	return now_ns < end_ns ? end_ns - now_ns : 0;
}

uint64_t gp_quiet_deadline(uint64_t timeout_ns)
{
	uint64_t now_ns = gp_clock_now_ns(NULL);

	return timeout_ns > UINT64_MAX - now_ns ? UINT64_MAX : now_ns + timeout_ns;
}

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

static void own(struct gp_quiet_hold *hold)
{
	is_mover = true;
	program_signals = hold->signals;
	hold->sleepers = &sleepers;
	(void)pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &hold->cancel_state);
}

bool gp_quiet_take(uint64_t end_ns, struct gp_quiet_hold *ret_hold)
{
	for (unsigned attempt = 0;; attempt++) {
		block_signals(&ret_hold->signals);
		if (gp_mutex_try(&lock))
			break;
		(void)sigprocmask(SIG_SETMASK, &ret_hold->signals, NULL);
		if (!gp_quiet_left(end_ns) && !atomic_load(&is_brief))
			return false;
		gp_clock_pause(NULL, attempt);
	}
	own(ret_hold);
	return true;
}

void gp_quiet_take_in_turn(struct gp_quiet_hold *ret_hold)
{
	block_signals(&ret_hold->signals);
	gp_mutex_lock(&lock);
	own(ret_hold);
}

void gp_quiet_give(const struct gp_quiet_hold *hold)
{
	is_mover = false;
	gp_mutex_unlock(&lock);
	(void)pthread_setcancelstate(hold->cancel_state, NULL);
	(void)sigprocmask(SIG_SETMASK, &hold->signals, NULL);
}

void gp_quiet_set_brief(bool brief)
{
	atomic_store(&is_brief, brief);
}

static bool is_ignored(int signal, void (*handler)(int))
{
	return handler == SIG_IGN || (handler == SIG_DFL && (signal == SIGCHLD || signal == SIGCONT ||
								    signal == SIGURG || signal == SIGWINCH));
}

bool gp_quiet_deliver_signals(void)
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

		if (gp_pool_type(sleepers.pools[i].pool) == GP_KIND_VMM)
			continue;
		gp_pool_stats(sleepers.pools[i].pool, &stats);
		if (stats.total_bytes)
			return &sleepers.pools[i];
	}
	return NULL;
}

/* Reasons that hold for the process for good, or until the user changes a setting. */
static bool is_able(struct gp_quiet_refusal *refusal)
{
	const char *unseen = gp_serial_why_unseen();
	const struct gp_sleeper *other = other_kind();

	if (gp_slow_path_is_any(GP_SLOW_PATH_BYPASS | GP_SLOW_PATH_END))
		return gp_quiet_refuse(refusal, -ENOTSUP, "the process is ending");
	if (!sleepers.n_contexts)
		return gp_quiet_refuse(refusal, -ENOTSUP, "the process has no pooled memory");
	if (other)
		return gp_quiet_refuse(refusal, -ENOTSUP,
			"only memory of the pool type vmm can sleep, and this is %s; start the program with "
			"GPUPOOL_POOL=vmm",
			gp_kind_name(gp_pool_type(other->pool)));
	if (gp_debug_is_on())
		return gp_quiet_refuse(
			refusal, -ENOTSUP, "GPUPOOL_DEBUG watches the memory; start the program without it");
	if (!gp_sleep_backend_works() || !gp_real.cuCtxRecordEvent || !gp_real.cuCtxWaitEvent)
		return gp_quiet_refuse(refusal, -ENOTSUP, "the driver lacks functions that a sleep needs");
	if (unseen || gp_submission_is_unseen(&gp_submitted))
		return gp_quiet_refuse(
			refusal, -ENOTSUP, "work may be submitted past gpupool: %s", unseen ? unseen : "a lookup");
	if (gp_real_why_unexamined())
		return gp_quiet_refuse(
			refusal, -ENOTSUP, "calls may reach the driver past gpupool: %s", gp_real_why_unexamined());
	return true;
}

/* Reasons that the program may cause at any time. Asked again once the gate is closed. */
static bool is_willing(enum gp_quiet_manner manner, struct gp_quiet_refusal *refusal)
{
	gp_libraries_look();
	if (manner != GP_QUIET_TO_DEVICE && gp_context_why_shared())
		return gp_quiet_refuse(refusal, -ENOTSUP, "other work than that of this process may use the memory: %s",
			gp_context_why_shared());
	if (gp_slow_path_is_any(GP_SLOW_PATH_CONTEXTS))
		return gp_quiet_refuse(refusal, -ENOTSUP, "the process may have contexts that gpupool does not see");
	for (unsigned i = 0; i < sleepers.n_contexts; i++)
		if (gp_context_is(sleepers.contexts[i], GP_CONTEXT_DEAD | GP_CONTEXT_ENDING | GP_CONTEXT_BROKEN))
			return gp_quiet_refuse(refusal, -EIO, "a context has ended, or an error has made it unusable");
	if (gp_slow_path_is_any(GP_SLOW_PATH_LIBRARIES))
		return gp_quiet_refuse(refusal, -EBUSY, "the program is loading a library; try again");
	return true;
}

/*
 * Collects all contexts that the program can work in. In those without memory, too, work may use the memory of others,
 * so each needs fences. One that the program creates later has no work as long as the gate is closed.
 */
static bool collect_all(struct gp_quiet_refusal *refusal)
{
	CUcontext seen[GP_CONTEXTS_SEEN_MAX];
	unsigned n = gp_context_seen_all(seen);
	bool is_complete = n != 0;

	for (unsigned i = 0; i < n; i++)
		is_complete &= gp_context_adopt(seen[i]);
	gp_sleepers_put(&sleepers);
	gp_sleepers_collect(&sleepers);
	if (!n || sleepers.is_too_many)
		return gp_quiet_refuse(refusal, -ENOTSUP, "the process has too many contexts or regions");
	if (!is_complete)
		return gp_quiet_refuse(refusal, -EBUSY, "busy: a context ends or begins; try again");
	return true;
}

bool gp_quiet_arrive(void)
{
	if (is_mover)
		return false;
	atomic_fetch_add(&n_waiting, 1);
	return true;
}

void gp_quiet_depart(void)
{
	atomic_fetch_sub(&n_waiting, 1);
}

bool gp_quiet_has_waiting(void)
{
	return atomic_load(&n_waiting) != 0;
}

bool gp_quiet_is_awaited(void *unused)
{
	(void)gp_quiet_deliver_signals();
	return gp_quiet_has_waiting();
}

static bool must_give_way(void)
{
	return gp_quiet_is_awaited(NULL) && !is_patient;
}

bool gp_quiet_refuse_awaited(struct gp_quiet_refusal *ret_refusal)
{
	return gp_quiet_refuse(ret_refusal, -EBUSY, "busy: the program submits work; try again while it is idle");
}

/* Returns false, with a refusal, after a signal, if a thread waits at the gate, or if the time is over. */
static bool may_wait(uint64_t end_ns, const char *what_is_busy, struct gp_quiet_refusal *refusal)
{
	if (gp_quiet_deliver_signals())
		return gp_quiet_refuse(refusal, -EINTR, "a signal came");
	if (must_give_way())
		return gp_quiet_refuse_awaited(refusal);
	return gp_quiet_left(end_ns) ||
	       gp_quiet_refuse(refusal, -EBUSY, "busy: %s; try again, or with a longer --timeout", what_is_busy);
}

/*
 * Waits until no submission is under way. Gives up as soon as a thread waits at the gate: the call that this function
 * waits for may itself wait for that thread.
 */
static bool await_submissions(uint64_t end_ns, struct gp_quiet_refusal *refusal)
{
	for (unsigned attempt = 0; !gp_submission_is_quiet(&gp_submitted); attempt++) {
		if (gp_submission_is_unseen(&gp_submitted))
			return gp_quiet_refuse(refusal, -ENOTSUP, "work may be submitted past gpupool");
		if (!may_wait(end_ns, "a call that submits work has not returned", refusal))
			return false;
		gp_clock_pause(NULL, attempt);
	}
	return !must_give_way() || gp_quiet_refuse_awaited(refusal);
}

/* Waits for the fence of one context, likewise. */
static bool await_fence(struct gp_context *context, uint64_t fence, uint64_t end_ns, struct gp_quiet_refusal *refusal)
{
	for (unsigned attempt = 0; !gp_pool_grace_is_over(context->pool, fence); attempt++) {
		if (gp_sleepers_is_lost(context))
			return gp_quiet_refuse(refusal, -EIO, "a context has ended, or an error has made it unusable");
		if (!may_wait(end_ns, "the GPU has not finished its work", refusal))
			return false;
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
static bool quieten(uint64_t end_ns, struct gp_quiet_refusal *refusal)
{
	if (!await_submissions(end_ns, refusal) || !collect_all(refusal))
		return false;
	if (!gp_capture_is_none())
		return gp_quiet_refuse(refusal, -EBUSY, "busy: a stream captures; try again later");
	for (unsigned i = 0; i < sleepers.n_contexts; i++) {
		int r = gp_pool_grace_begin(sleepers.contexts[i]->pool, &sleepers.fences[i]);

		if (r)
			return gp_quiet_refuse(refusal, -EIO, "the driver refused to record a fence: error %d", r);
	}
	for (unsigned i = 0; i < sleepers.n_contexts; i++)
		if (!await_fence(sleepers.contexts[i], sleepers.fences[i], end_ns, refusal))
			return false;
	return true;
}

bool gp_quiet_begin(const struct gp_quiet_hold *hold, enum gp_quiet_manner manner, uint64_t end_ns,
	struct gp_quiet_refusal *ret_refusal)
{
	is_patient = manner != GP_QUIET_YIELDS;
	if (!is_able(ret_refusal) || !is_willing(manner, ret_refusal))
		return false;
	gp_submission_close(&gp_submitted);
	if (quieten(end_ns, ret_refusal) && is_able(ret_refusal) && is_willing(manner, ret_refusal))
		return true;
	gp_quiet_open();
	return false;
}

void gp_quiet_open(void)
{
	gp_submission_open(&gp_submitted);
}

/* Calls fn with the pools of the process, which is awake. */
static bool call_quietly(const struct gp_quiet_hold *hold, enum gp_quiet_manner manner, uint64_t end_ns,
	void (*fn)(void *arg, const struct gp_sleepers *sleepers), void *arg, struct gp_quiet_refusal *refusal)
{
	bool is_entered;

	if (!gp_quiet_begin(hold, manner, end_ns, refusal))
		return false;
	is_entered = !gp_sleepers_enter(&sleepers, end_ns) ||
		     gp_quiet_refuse(refusal, -EBUSY, "busy: a thread maps, unmaps or exports memory; try again");
	if (is_entered)
		fn(arg, &sleepers);
	gp_sleepers_leave(&sleepers);
	gp_quiet_open();
	return is_entered;
}

bool gp_quiet_run(enum gp_quiet_manner manner, uint64_t timeout_ns,
	void (*fn)(void *arg, const struct gp_sleepers *sleepers), void *arg, struct gp_quiet_refusal *ret_refusal)
{
	uint64_t end_ns = gp_quiet_deadline(timeout_ns);
	struct gp_quiet_hold hold;
	bool is_quiet;

	/* A signal interrupts an attempt, and its handler runs between two of them. */
	do {
		*ret_refusal = (struct gp_quiet_refusal){0};
		if (!gp_quiet_take(end_ns, &hold))
			return gp_quiet_refuse(ret_refusal, -EBUSY, "busy: another thread moves memory");
		gp_sleepers_collect(&sleepers);
		/* While no thread holds the lock the gate is closed only asleep. */
		is_quiet = !gp_submission_is_closed(&gp_submitted) ||
			   gp_quiet_refuse(ret_refusal, -EBUSY, "the process is asleep");
		is_quiet = is_quiet && call_quietly(&hold, manner, end_ns, fn, arg, ret_refusal);
		gp_sleepers_put(&sleepers);
		gp_quiet_give(&hold);
	} while (!is_quiet && ret_refusal->error == -EINTR);
	return is_quiet;
}

/* The child's calls go to the driver. */
static void reset_in_child(void)
{
	gp_mutex_init(&lock, GP_RANK_QUIET);
	is_mover = false;
	atomic_store(&n_waiting, 0);
	atomic_store(&is_brief, false);
	atomic_store(&gp_submitted.n_visits, 0);
	gp_quiet_open();
}

void gp_quiet_start(void)
{
	static const struct gp_fork_child child = {.fn = reset_in_child};

	gp_fork_on_child(&child);
}
