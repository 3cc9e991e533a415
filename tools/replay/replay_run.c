/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Runs the pools on a file: one call of the program after another, of all threads, in the order of the file.
 *
 * In the file, an allocation follows the answers that the driver gave to it. Any other call, such as a free, precedes
 * the answers to it. So answers between a free and an allocation may belong to either call. The replay queues them:
 * - The free is replayed first, and takes the answers that it needs.
 * - If an allocation follows, it takes answers from the rest. The others are then applied.
 * - If another free follows, the rest is applied before it.
 */

#include "replay_run.h"

#include <stdlib.h>

#include "tools/text/stat_say.h"
#include "replay_call.h"

enum { EVENTS_A_TICK = 4096 };

/* Applies the queued answers of all pools, which are in a list if they have any, and sets the clock to this event. */
static void apply_all_answers(struct replay_state *run, const struct replay_event *e)
{
	struct replay_pool *p;

	while ((p = run->answered)) {
		run->answered = p->next_answered;
		p->is_answered = false;
		replay_apply_answers(p);
	}
	run->n_answers = 0;
	run->clock.now = gp_max(run->clock.now, e->position);
	run->clock.now_ns = gp_max(run->clock.now_ns, e->ns);
}

static void queue_answer(struct replay_state *run, const struct replay_event *e)
{
	struct replay_pool *p = run->pools[e->pool];

	/* An ALLOC applies only the answers of its pool; without this bound those of other pools would pile up. */
	if (run->n_answers == REPLAY_ANSWERS_MAX)
		apply_all_answers(run, e);
	run->n_answers++;
	replay_answer(p, e);
	if (p->is_answered)
		return;
	p->is_answered = true;
	p->next_answered = run->answered;
	run->answered = p;
}

static void sum_up(const struct replay_state *run, bool is_pinned, struct gp_stats *ret_sum)
{
	*ret_sum = (struct gp_stats){0};
	for (uint32_t i = 0; i < run->n_pools; i++) {
		struct gp_stats stats;

		if (run->pools[i]->is_pinned != is_pinned)
			continue;
		gp_pool_stats(run->pools[i]->pool, &stats);
		gp_stats_add(ret_sum, &stats);
	}
}

/* Adds a row, with the state before this event, for each tenth of the time (of a trace: of the events) that is over. */
static void add_rows(struct replay_state *run, const struct replay_event *e)
{
	const struct replay_contents *c = run->contents;
	struct replay_result *result = run->result;

	while (result->n_rows < REPLAY_ROWS) {
		unsigned nth = result->n_rows + 1;
		struct replay_row row = {
			.position = c->duration_ns ? e->position - 1 : c->n_events * nth / REPLAY_ROWS,
			.ns = c->duration_ns / REPLAY_ROWS * nth,
			.live_bytes = run->live_bytes,
		};

		if (c->duration_ns ? e->ns <= row.ns : e->position <= row.position)
			return;
		sum_up(run, false, &row.stats);
		result->rows[result->n_rows++] = row;
	}
}

static void finish_answers(struct replay_state *run, struct replay_pool *p, const struct replay_event *e)
{
	run->n_answers -= p->answers.n;
	replay_apply_answers(p);
	p->now_ns = gp_max(p->now_ns, e->ns);
}

static void run_event(struct replay_state *run, const struct replay_event *e, struct replay_event *call)
{
	if (replay_is_answer(e->kind)) {
		queue_answer(run, e);
		return;
	}
	if (e->kind == GP_RECORD_POOL)
		replay_add_pool(run, e);
	if (!replay_is_call(e->kind))
		return;
	/* The answers to the call before have been queued by now. */
	if (call->position)
		replay_call(run, call);
	*call = (struct replay_event){0};
	add_rows(run, e);
	if (e->kind != GP_RECORD_ALLOC) {
		apply_all_answers(run, e);
		*call = *e;
		return;
	}
	replay_call(run, e);
	finish_answers(run, run->pools[e->pool], e);
	finish_answers(run, run->pools[e->pool]->fences, e);
}

static void finish(struct replay_state *run)
{
	struct replay_result *result = run->result;

	sum_up(run, false, &result->device);
	sum_up(run, true, &result->pinned);
	for (unsigned i = 0; i < REPLAY_DEVICES_MAX; i++) {
		const struct replay_memory *m = run->devices[i];

		if (!m)
			continue;
		result->n_devices++;
		result->peak_total_bytes += m->peak_bytes;
		if (m->peak_bytes <= result->peak_device_bytes)
			continue;
		result->peak_device_bytes = m->peak_bytes;
		result->peak_position = m->peak_position;
	}
	result->peak_total_pinned_bytes = run->pinned ? run->pinned->peak_bytes : 0;
}

static void free_memory(struct replay_memory *memory)
{
	if (memory)
		replay_memory_deinit(memory);
	free(memory);
}

static void deinit(struct replay_state *run)
{
	replay_close_caches(run);
	for (uint32_t i = 0; i < run->n_pools; i++) {
		gp_pool_drop(run->pools[i]->pool);
		gp_pool_put(run->pools[i]->pool);
	}
	/* Separate from the loop above: a pool lasts as long as another that shares its fences. */
	for (uint32_t i = 0; i < run->n_pools; i++) {
		replay_pool_deinit(run->pools[i]);
		free(run->pools[i]);
	}
	for (unsigned i = 0; i < REPLAY_DEVICES_MAX; i++)
		free_memory(run->devices[i]);
	free_memory(run->pinned);
	free(run->pools);
	replay_map_deinit(&run->live);
	replay_map_deinit(&run->origins);
	replay_map_deinit(&run->caches);
}

static bool is_at_end(const struct replay_state *run, const struct replay_event *e)
{
	const struct replay_settings *settings = &run->settings;

	return (settings->ends_at_refusal && run->result->n_refused) ||
	       (settings->end_position && e->position >= settings->end_position);
}

int replay_run(struct replay_file *file, const struct replay_contents *contents, const struct replay_settings *settings,
	struct replay_progress *progress, const struct replay_look *look, struct replay_result *result,
	char error[static REPLAY_ERROR_MAX])
{
	struct replay_state run = {
		.contents = contents, .settings = *settings, .result = result, .work = GP_SUBMISSION_INIT};
	struct replay_event event = {0}, call = {0}, end = {.position = contents->n_events + 1, .ns = UINT64_MAX};
	int r;

	*result = (struct replay_result){.settings = *settings};
	replay_rewind(file);
	while ((r = replay_next(file, &event, error)) > 0) {
		run_event(&run, &event, &call);
		if (progress && event.position % EVENTS_A_TICK == 0)
			replay_progress_add(progress, EVENTS_A_TICK);
		if (is_at_end(&run, &event))
			break;
	}
	r = gp_min(r, 0);
	if (call.position)
		replay_call(&run, &call);
	add_rows(&run, &end);
	finish(&run);
	if (look)
		look->fn(look->arg, &run);
	deinit(&run);
	return r;
}
