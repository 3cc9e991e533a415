/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "work.h"

#include <stdlib.h>

#include "ctx.h"

#define FLAG_SEEN_NS 500 /* from the store of a flag until the kernel that spins on it ends */

static uint64_t submissions;
static struct sim_work *polling; /* kernels that spin on a flag */

void sim_op_touch(struct sim_op *op, uint64_t lo, uint64_t bytes, enum sim_access_kind kind)
{
	if (bytes)
		op->accesses[op->n_accesses++] = (struct sim_access){lo, lo + bytes, kind};
}

struct sim_work *sim_work_new(struct sim_ctx *ctx, const struct sim_op *op)
{
	struct sim_work *work = sim_alloc_zeroed(1, sizeof(*work));

	work->op = *op;
	work->ctx = ctx;
	work->refs = 2; /* one for the caller, and one until it is finished */
	work->waits_for = 1;
	work->number = ++submissions;
	work->next = ctx->works;
	if (work->next)
		work->next->prev = work;
	ctx->works = work;
	return work;
}

struct sim_work *sim_work_ref(struct sim_work *work)
{
	if (work)
		work->refs++;
	return work;
}

struct sim_work *sim_work_unref(struct sim_work *work)
{
	if (work && !--work->refs) {
		free(work->followers);
		free(work->sample);
		free(work->op.staged);
		free(work);
	}
	return NULL;
}

void sim_work_replace(struct sim_work **slot, struct sim_work *work)
{
	sim_work_ref(work);
	sim_work_unref(*slot);
	*slot = work;
}

bool sim_work_done(const struct sim_work *work)
{
	return !work || work->state == SIM_DONE;
}

void sim_work_after(struct sim_work *work, struct sim_work *predecessor)
{
	if (sim_work_done(predecessor))
		return;
	sim_grow(&predecessor->followers, &predecessor->followers_capacity, predecessor->n_followers + 1,
		sizeof(*predecessor->followers));
	predecessor->followers[predecessor->n_followers++] = sim_work_ref(work);
	work->waits_for++;
}

static void satisfy(struct sim_work *work)
{
	if (!--work->waits_for && work->state == SIM_QUEUED)
		sim_timeline_add(work, sim_now());
}

void sim_work_submit(struct sim_work *work)
{
	satisfy(work);
	sim_timeline_progress();
}

static void leave_context(struct sim_work *work)
{
	if (work->prev)
		work->prev->next = work->next;
	else
		work->ctx->works = work->next;
	if (work->next)
		work->next->prev = work->prev;
	if (work->stream)
		work->stream->unfinished--;
	work->stream = NULL;
}

static void complete(struct sim_work *work)
{
	leave_context(work);
	work->state = SIM_DONE;
	work->finished_ns = sim_now();
	for (unsigned i = 0; i < work->n_followers; i++) {
		satisfy(work->followers[i]);
		sim_work_unref(work->followers[i]);
	}
	work->n_followers = 0;
	free(work->sample);
	work->sample = NULL;
	sim_timeline_progress();
	sim_work_unref(work);
}

void sim_work_drop(struct sim_work *work)
{
	if (work->state == SIM_DONE)
		return;
	work->dropped = true;
	if (work->op.kind == SIM_RELEASE)
		sim_effect_apply(work);
	complete(work);
}

static void start_polling(struct sim_work *work)
{
	if (sim_effect_flag_is_set(work)) {
		work->state = SIM_RUNNING;
		sim_timeline_add(work, sim_now() + FLAG_SEEN_NS);
		return;
	}
	work->state = SIM_POLLING;
	work->next_polling = polling;
	polling = sim_work_ref(work);
}

void sim_work_start(struct sim_work *work)
{
	if (work->ctx->sticky) {
		sim_work_drop(work);
		return;
	}
	if (!sim_effect_check(work)) {
		sim_ctx_fault(work->ctx, CUDA_ERROR_ILLEGAL_ADDRESS);
		return;
	}
	if (work->op.kind == SIM_WAIT_FLAG) {
		start_polling(work);
		return;
	}
	work->state = SIM_RUNNING;
	if (work->op.kind == SIM_HOST_FUNC) {
		sim_host_func_run(work);
		return;
	}
	sim_effect_sample(work);
	sim_timeline_add(work, sim_now() + work->op.duration_ns + sim_effect_bring(work));
}

void sim_work_finish(struct sim_work *work)
{
	if (work->op.kind == SIM_TRAP) {
		sim_ctx_fault(work->ctx, CUDA_ERROR_LAUNCH_FAILED);
		return;
	}
	if (!sim_effect_check(work)) {
		sim_ctx_fault(work->ctx, CUDA_ERROR_ILLEGAL_ADDRESS);
		return;
	}
	sim_effect_apply(work);
	complete(work);
	sim_work_poll_flags();
}

void sim_work_poll_flags(void)
{
	for (struct sim_work **link = &polling, *work; (work = *link);) {
		if (work->state == SIM_POLLING && !sim_effect_flag_is_set(work)) {
			link = &work->next_polling;
			continue;
		}
		*link = work->next_polling;
		if (work->state == SIM_POLLING) {
			work->state = SIM_RUNNING;
			sim_timeline_add(work, sim_now() + FLAG_SEEN_NS);
		}
		sim_work_unref(work);
	}
}

bool sim_work_polls_shared_memory(void)
{
	for (const struct sim_work *work = polling; work; work = work->next_polling) {
		struct sim_block *block = sim_block_at(work->op.src);

		if (block && sim_block_is_shared(block))
			return true;
	}
	return false;
}
