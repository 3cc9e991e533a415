/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "neighbours.h"

#include "reclaim.h"
#include "shim/base/clock.h"
#include "shim/base/log.h"
#include "shim/context/capture.h"
#include "wait_budget.h"

/*
 * A pause is short enough for the memory to be taken before other processes take it, and long enough to leave the
 * processor to them. Asking the driver what it has left takes some microseconds, a failing allocation far more. So the
 * allocation is tried when the driver has more than before, and now and then in case its answer is too low.
 */
#define PAUSE_STEP_NS    UINT64_C(100000)
#define PAUSE_MAX_NS     UINT64_C(1000000)
#define TRY_AGAIN_NS     UINT64_C(50000000)
#define ASK_AGAIN_NS     UINT64_C(100000000) /* less than GP_WANTED_NS, so that the neighbours' caches stay empty */
#define ASK_AGAIN_MAX_MS 500                 /* for the answers to a repeated question */

/*
 * The processes answer one after the other. Memory that goes from one to another meanwhile may be counted in neither.
 * So only several answers in a row show that all of them hold too little.
 */
#define LOOK_AGAIN_NS UINT64_C(1000000)
enum { LOOKS = 3 };

/* A process that ends no longer answers, but the driver takes some time to free what the process holds. */
#define END_NS UINT64_C(1000000000)

/*
 * The driver may have enough memory although the other processes hold nothing, since one of them has ended after the
 * driver refused. Then the library asks the driver once more, and not again: if the driver refuses for another reason,
 * waiting does not help.
 */
#define TRY_ONCE_NS UINT64_C(10000000) /* less than TRY_AGAIN_NS */

static struct gp_mutex lock = GP_MUTEX_INIT(GP_RANK_LEAF);
static struct gp_wait_budget budget; /* guarded by lock */

static uint64_t grant(void)
{
	uint64_t ns;

	gp_mutex_lock(&lock);
	ns = gp_wait_budget_grant(&budget, gp_clock_now_ns(NULL));
	gp_mutex_unlock(&lock);
	return ns;
}

static void end_grant(uint64_t granted_ns, uint64_t waited_ns, bool is_served)
{
	gp_mutex_lock(&lock);
	gp_wait_budget_end(&budget, gp_clock_now_ns(NULL), granted_ns, waited_ns, is_served);
	gp_mutex_unlock(&lock);
}

/* True if the driver would have enough if the neighbours freed all that they hold. */
static bool can_be_enough(const struct gp_wait *wait, uint64_t held_bytes)
{
	return wait->available_bytes == UINT64_MAX || wait->available_bytes >= wait->bytes ||
	       held_bytes >= wait->bytes - wait->available_bytes;
}

static bool has_enough(const struct gp_wait *wait)
{
	return wait->available_bytes != UINT64_MAX && wait->available_bytes >= wait->bytes;
}

static uint64_t ask(struct gp_context *context, struct gp_wait *wait, int max_ms)
{
	uint64_t held_bytes = gp_reclaim_want(context, wait->bytes, max_ms);

	wait->asked_ns = gp_clock_now_ns(NULL);
	return held_bytes;
}

/* Returns why a thread may not wait, or GP_PROCESSES_WAITED with the longest time that it may wait. */
static enum gp_processes_wait find(
	struct gp_context *context, struct gp_wait *wait, gp_neighbours_available_fn *available, uint64_t *ret_max_ns)
{
	uint64_t held_bytes = 0;

	if (!gp_capture_is_none())
		return GP_PROCESSES_CAPTURE;
	for (int i = 0; i < LOOKS; i++) {
		if (i)
			gp_clock_sleep(LOOK_AGAIN_NS);
		held_bytes = ask(context, wait, GP_PROCESSES_ASK_MS);
		wait->available_bytes = available(context);
		if (!gp_reclaim_last_answers()->n && gp_reclaim_last_answers()->broker.state != GP_BROKER_ANSWERED)
			break;
		wait->enough_ns = wait->asked_ns;
		*ret_max_ns = held_bytes ? wait->max_ns : TRY_ONCE_NS;
		if (held_bytes ? can_be_enough(wait, held_bytes) : has_enough(wait))
			return GP_PROCESSES_WAITED;
	}
	return held_bytes ? GP_PROCESSES_TOO_LITTLE : GP_PROCESSES_NONE;
}

uint64_t gp_neighbours_wait_begin(
	struct gp_context *context, uint64_t bytes, struct gp_wait *ret_wait, gp_neighbours_available_fn *available)
{
	enum gp_processes_wait result;
	uint64_t max_ns = 0;

	*ret_wait = (struct gp_wait){.bytes = bytes};
	if (gp_state.config.oom_wait_ms != GP_CONFIG_OOM_WAIT_AUTO || !gp_reclaim_can_ask(context))
		return 0;
	ret_wait->max_ns = grant();
	result = ret_wait->max_ns ? find(context, ret_wait, available, &max_ns) : GP_PROCESSES_SPENT;
	gp_reclaim_note_wait(result);
	if (result == GP_PROCESSES_WAITED)
		return max_ns;
	if (ret_wait->max_ns)
		end_grant(ret_wait->max_ns, 0, false);
	return 0;
}

enum gp_wait_news gp_neighbours_wait_pause(
	struct gp_context *context, struct gp_wait *wait, gp_neighbours_available_fn *available)
{
	uint64_t before = wait->available_bytes, now_ns;

	gp_clock_sleep(gp_min(++wait->n_pauses * PAUSE_STEP_NS, PAUSE_MAX_NS));
	if (!gp_capture_is_none())
		return GP_WAIT_OVER;
	now_ns = gp_clock_now_ns(NULL);
	wait->available_bytes = available(context);
	if (now_ns - wait->asked_ns >= ASK_AGAIN_NS) {
		uint64_t held_bytes = ask(context, wait, ASK_AGAIN_MAX_MS);

		/* Read after the answers: the neighbours give back memory before they answer. */
		wait->available_bytes = available(context);
		if (can_be_enough(wait, held_bytes))
			wait->enough_ns = now_ns;
		else if (now_ns - wait->enough_ns > END_NS)
			return GP_WAIT_OVER;
	}
	if (wait->n_pauses > 1 && now_ns - wait->tried_ns < TRY_AGAIN_NS &&
		(wait->available_bytes <= before || wait->available_bytes < wait->bytes))
		return GP_WAIT_NOTHING;
	wait->tried_ns = now_ns;
	return GP_WAIT_MORE;
}

void gp_neighbours_wait_end(struct gp_wait *wait, uint64_t waited_ns, bool is_served)
{
	end_grant(wait->max_ns, gp_max(waited_ns, 1), is_served);
}
