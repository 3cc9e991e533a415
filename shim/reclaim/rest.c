/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "rest.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "reclaim.h"
#include "rest_choice.h"
#include "shim/base/clock.h"
#include "shim/base/log.h"
#include "shim/context/capture.h"

/* Granules of the driver, and what the pool takes beside the request. */
#define SLACK (2 * GP_MIB)

#define PAUSE_NS     UINT64_C(1000000)
#define ASK_AGAIN_NS UINT64_C(200000000)

/* Processes that are not idle yet are asked LOOKS times more. A process is idle after IDLE_DS tenths of a second. */
#define LOOK_AGAIN_NS UINT64_C(150000000)
enum { LOOKS = 6, IDLE_DS = 10 };

/* For the answers to a repeated question. A process that is silent for longer may be on its way. */
enum { ASK_MS = 500 };

/* The longest wait: pinning memory that is not warm takes the driver a second for each GiB. */
#define WAIT_NS         UINT64_C(2000000000)
#define WAIT_PER_GIB_NS UINT64_C(1000000000)

struct sleepers {
	unsigned n;
	unsigned n_others; /* that have GPUPOOL_SLEEP set, and are not idle */
	bool is_last_try;  /* none of them is on its way any more */
	struct gp_process processes[GP_PROCESSES_SHOWN];
};

static bool is_chosen(const void *arg, pid_t pid, uint64_t start_ticks)
{
	const struct sleepers *sleepers = arg;

	for (unsigned i = 0; i < sleepers->n; i++)
		if (sleepers->processes[i].named == gp_process_named(pid, start_ticks))
			return true;
	return false;
}

/* Returns the bytes that the driver lacks, with some slack; 0: none. */
static uint64_t missing(uint64_t bytes, uint64_t available)
{
	uint64_t wanted = bytes + gp_min(SLACK, UINT64_MAX - bytes);

	if (available == UINT64_MAX)
		return wanted;
	return bytes > available ? wanted - available : 0;
}

/*
 * A process that has not answered the question for its cache is not asked again. Other users' processes are never asked
 * to sleep, not even by root.
 */
static bool has_answered(const void *unused, pid_t pid, uint64_t start_ticks)
{
	const struct gp_processes *answers = gp_reclaim_last_answers();

	for (unsigned i = 0; i < gp_min(answers->n, GP_PROCESSES_SHOWN); i++)
		if (answers->shown[i].named == gp_process_named(pid, start_ticks))
			return !answers->shown[i].error && answers->shown[i].uid == geteuid();
	return answers->n > GP_PROCESSES_SHOWN;
}

/*
 * Asks all processes how much their sleep would give, and chooses among them. Returns the longest time for which any of
 * the others has been idle.
 */
static unsigned choose(struct gp_context *context, uint64_t bytes, struct sleepers *ret)
{
	struct gp_processes found;
	unsigned idle_ds = 0;

	*ret = (struct sleepers){0};
	gp_reclaim_ask(context, "rest", 0, has_answered, NULL, GP_PROCESSES_ASK_MS, &found);
	for (unsigned i = 0; i < gp_min(found.n, GP_PROCESSES_SHOWN); i++) {
		if (found.shown[i].may_sleep && found.shown[i].held_bytes)
			ret->processes[ret->n++] = found.shown[i];
		if (!found.shown[i].may_sleep || found.shown[i].held_bytes)
			continue;
		ret->n_others++;
		idle_ds = gp_max(idle_ds, (unsigned)found.shown[i].idle_ds);
	}
	ret->n = gp_rest_choose(ret->processes, ret->n, bytes);
	return idle_ds;
}

/*
 * A process that has ended its work a moment ago is not idle yet, and would be by the time that this request has
 * failed. So the processes are asked again for as long as one of them stays idle.
 */
static void choose_patiently(struct gp_context *context, uint64_t bytes, struct sleepers *ret)
{
	unsigned before_ds = 0, idle_ds = choose(context, bytes, ret);

	for (int i = 0; i < LOOKS && !ret->n && ret->n_others && gp_capture_is_none(); i++) {
		if (i && (idle_ds <= before_ds || idle_ds >= IDLE_DS))
			break;
		gp_clock_sleep(LOOK_AGAIN_NS);
		before_ds = idle_ds;
		idle_ds = choose(context, bytes, ret);
	}
}

/* Sends the request to the chosen ones. bytes: 0 asks how far they are. Returns true if any is still on its way. */
static bool ask_chosen(struct gp_context *context, const struct sleepers *sleepers, uint64_t bytes)
{
	struct gp_processes answers;
	bool is_any = false;

	gp_reclaim_ask(context, "rest", bytes, is_chosen, sleepers, ASK_MS, &answers);
	for (unsigned i = 0; i < gp_min(answers.n, GP_PROCESSES_SHOWN); i++)
		is_any |= answers.shown[i].error == -ETIMEDOUT || answers.shown[i].held_bytes;
	return is_any;
}

static uint64_t longest_wait_ns(const struct sleepers *sleepers)
{
	uint64_t bytes = 0;

	for (unsigned i = 0; i < sleepers->n; i++)
		bytes += sleepers->processes[i].held_bytes;
	return WAIT_NS + (bytes / GP_GIB + 1) * WAIT_PER_GIB_NS;
}

static void log_asked(const struct gp_context *context, const struct sleepers *sleepers, const char *why)
{
	for (unsigned i = 0; i < sleepers->n; i++)
		gp_log(GP_LOG_INFO,
			"%s: asked process %d, idle for %u s, to sleep, for up to %" PRIu64 " MiB of device %d", why,
			(int)sleepers->processes[i].pid, sleepers->processes[i].idle_ds / 10,
			sleepers->processes[i].held_bytes / GP_MIB, context->device->index);
}

uint64_t gp_rest_wait_begin(
	struct gp_context *context, uint64_t bytes, struct gp_wait *ret_wait, gp_neighbours_available_fn *available)
{
	struct sleepers *sleepers;
	uint64_t lacking;

	*ret_wait = (struct gp_wait){.bytes = bytes};
	if (!gp_reclaim_can_ask(context) || !gp_capture_is_none())
		return 0;
	ret_wait->available_bytes = available(context);
	lacking = missing(bytes, ret_wait->available_bytes);
	sleepers = lacking ? calloc(1, sizeof(*sleepers)) : NULL;
	if (!sleepers)
		return 0;
	choose_patiently(context, lacking, sleepers);
	if (!sleepers->n) {
		free(sleepers);
		return 0;
	}
	log_asked(context, sleepers, "out of memory");
	ret_wait->max_ns = longest_wait_ns(sleepers);
	ret_wait->sleepers = sleepers;
	sleepers->is_last_try = !ask_chosen(context, sleepers, lacking);
	ret_wait->asked_ns = gp_clock_now_ns(NULL);
	return ret_wait->max_ns;
}

enum gp_wait_news gp_rest_wait_pause(
	struct gp_context *context, struct gp_wait *wait, gp_neighbours_available_fn *available)
{
	struct sleepers *sleepers = wait->sleepers;
	uint64_t before = wait->available_bytes;

	if (!gp_capture_is_none())
		return GP_WAIT_OVER;
	if (sleepers->is_last_try)
		return wait->n_pauses++ ? GP_WAIT_OVER : GP_WAIT_MORE;
	gp_clock_sleep(PAUSE_NS);
	/* Asked before the memory is looked at: once they have answered, it is there. */
	if (gp_clock_now_ns(NULL) - wait->asked_ns >= ASK_AGAIN_NS) {
		sleepers->is_last_try = !ask_chosen(context, sleepers, 0);
		wait->asked_ns = gp_clock_now_ns(NULL);
	}
	wait->available_bytes = available(context);
	return wait->available_bytes > before && wait->available_bytes >= wait->bytes ? GP_WAIT_MORE : GP_WAIT_NOTHING;
}

void gp_rest_wait_end(struct gp_wait *wait)
{
	free(wait->sleepers);
	wait->sleepers = NULL;
}

bool gp_rest_ask(struct gp_context *context, uint64_t bytes, gp_neighbours_available_fn *available)
{
	struct sleepers sleepers;
	uint64_t lacking;

	if (!gp_reclaim_can_ask(context))
		return false;
	lacking = missing(bytes, available(context));
	if (!lacking)
		return false;
	(void)choose(context, lacking, &sleepers);
	if (!sleepers.n)
		return false;
	log_asked(context, &sleepers, "waking");
	return ask_chosen(context, &sleepers, lacking);
}
