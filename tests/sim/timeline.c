/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * The virtual clock and its events. A heap holds the points in time at which work starts or ends. The
 * clock advances when a call costs time. It jumps to the next point when a thread has to wait, or has
 * polled long enough. If a thread waits and there is no next point, only another thread or a host
 * function can end the wait: the waiter releases the lock, and after some real time without any
 * progress the wait counts as a deadlock.
 */

#include <errno.h>
#include <stdlib.h>
#include <time.h>

#include "ctx.h"
#include "work.h"

enum { POLLS_MAX = 100 }; /* queries without other progress, after which the clock jumps */

struct point {
	uint64_t at_ns, order;
	struct sim_work *work;
};

static struct point *heap;
static unsigned n_points, heap_capacity;
static uint64_t now_ns, next_order, progress;
static bool stepping; /* a host function runs in the middle of a step, without the lock */

uint64_t sim_now(void)
{
	return now_ns;
}

static bool earlier(const struct point *a, const struct point *b)
{
	return a->at_ns != b->at_ns ? a->at_ns < b->at_ns : a->order < b->order;
}

void sim_timeline_add(struct sim_work *work, uint64_t at_ns)
{
	struct point point = {at_ns, next_order++, sim_work_ref(work)};
	unsigned i = n_points++;

	sim_grow(&heap, &heap_capacity, n_points, sizeof(*heap));
	for (; i && earlier(&point, &heap[(i - 1) / 2]); i = (i - 1) / 2)
		heap[i] = heap[(i - 1) / 2];
	heap[i] = point;
}

static struct point pop(void)
{
	struct point top = heap[0], last = heap[--n_points];
	unsigned i = 0;

	for (;;) {
		unsigned child = 2 * i + 1;

		if (child >= n_points)
			break;
		if (child + 1 < n_points && earlier(&heap[child + 1], &heap[child]))
			child++;
		if (!earlier(&heap[child], &last))
			break;
		heap[i] = heap[child];
		i = child;
	}
	heap[i] = last;
	return top;
}

/* Processes the next point on the timeline, unless it is later than until_ns. */
static bool step(uint64_t until_ns)
{
	struct point point;

	if (stepping || !n_points || heap[0].at_ns > until_ns)
		return false;
	stepping = true;
	point = pop();
	if (now_ns < point.at_ns)
		now_ns = point.at_ns;
	if (point.work->state == SIM_QUEUED)
		sim_work_start(point.work);
	else if (point.work->state == SIM_RUNNING)
		sim_work_finish(point.work);
	sim_work_unref(point.work);
	stepping = false;
	return true;
}

void sim_timeline_pass(uint64_t ns)
{
	uint64_t until = now_ns + ns;

	while (step(until))
		;
	if (now_ns < until)
		now_ns = until;
}

void sim_timeline_progress(void)
{
	progress++;
	if (sim.waiters)
		pthread_cond_broadcast(&sim.changed);
}

static uint64_t real_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* Releases the lock for other threads, until there is progress or the real time is until_ns. */
static void wait_for_progress(uint64_t until_ns)
{
	struct timespec ts = {(time_t)(until_ns / 1000000000u), (long)(until_ns % 1000000000u)};

	pthread_cond_timedwait(&sim.changed, &sim.lock, &ts);
}

static const struct sim_work *find_blocking_work(const struct sim_ctx *ctx)
{
	const struct sim_work *work = ctx->works;

	for (const struct sim_work *w = work; w; w = w->next)
		if (w->state == SIM_POLLING || w->state == SIM_RUNNING)
			work = w;
	return work;
}

static void declare_deadlock(void)
{
	sim.deadlocks++;
	for (struct sim_ctx *ctx = sim_contexts; ctx; ctx = ctx->next) {
		const struct sim_work *work = find_blocking_work(ctx);

		if (!work)
			continue;
		sim_print("deadlock: %s waits behind %s on stream %u (submission %llu), which "
			  "nothing can end",
			sim_call_name(), work->op.name, work->stream_number, (unsigned long long)work->number);
		sim_ctx_fault(ctx, CUDA_ERROR_LAUNCH_TIMEOUT);
	}
}

CUresult sim_wait_while(bool (*blocked)(const void *arg), const void *arg)
{
	uint64_t seen = progress, limit_ns = sim.config.deadlock_ms * SIM_NS_PER_MS;
	uint64_t deadline = real_ns() + limit_ns;

	while (blocked(arg)) {
		uint64_t before = now_ns, real;

		if (step(UINT64_MAX)) {
			sim_call_spend(now_ns - before);
			continue;
		}
		real = real_ns();
		if (progress != seen) {
			seen = progress;
			deadline = real + limit_ns;
		}
		if (real >= deadline) {
			declare_deadlock();
			return CUDA_ERROR_LAUNCH_TIMEOUT;
		}
		sim.waiters++;
		wait_for_progress(sim_work_polls_shared_memory() ? real + SIM_NS_PER_MS : deadline);
		sim.waiters--;
		sim_work_poll_flags();
	}
	return CUDA_SUCCESS;
}

static bool is_unfinished(const void *work)
{
	return !sim_work_done(work);
}

CUresult sim_wait_for(const struct sim_work *work)
{
	return sim_wait_while(is_unfinished, work);
}

/*
 * A program that only polls is waiting, and on a real GPU time would pass meanwhile. So the clock jumps after
 * POLLS_MAX queries. Returns true if the timeline has a point to jump to.
 */
static bool jump_for_polls(void)
{
	static uint64_t seen;
	static unsigned polls;

	if (progress != seen)
		polls = 0;
	seen = progress;
	if (!n_points || stepping)
		return false;
	if (++polls > POLLS_MAX) {
		polls = 0;
		sim_timeline_pass(heap[0].at_ns > now_ns ? heap[0].at_ns - now_ns : 0);
	}
	return true;
}

void sim_wait_polled(void)
{
	static uint64_t seen, since_ns;
	uint64_t real;

	sim_work_poll_flags();
	if (jump_for_polls() || stepping)
		return;
	real = real_ns();
	if (progress != seen || !since_ns) {
		seen = progress;
		since_ns = real;
	} else if (real - since_ns > sim.config.deadlock_ms * SIM_NS_PER_MS) {
		declare_deadlock();
	}
}
