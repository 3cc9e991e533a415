/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "first.h"

void first_init(struct first *first, struct work_context *context)
{
	*first = (struct first){.context = context, .slow = context_stream(context)};
	CONTEXT_MUST(cuEventCreate(&first->done, CU_EVENT_DISABLE_TIMING));
	(void)context_stream(context); /* a second stream: reuse then needs a GPU wait */
}

void first_expect_long(void)
{
	setenv("SIMGPU_LATENCY", "cuEventQuery=10000000,cuStreamQuery=10000000", 1);
}

CUdeviceptr first_reuse_block(struct first *first, size_t bytes, uint64_t ns)
{
	CUdeviceptr old = context_alloc(first->context, bytes), new;
	CUresult r;

	context_spin_fill(first->context, first->slow, old, FIRST_TOUCHED, 0xdead, ns);
	CONTEXT_MUST(cuEventRecord(first->done, first->slow));
	CONTEXT_MUST(cuMemFree_v2(old));
	new = context_alloc(first->context, bytes);
	r = cuEventQuery(first->done);
	first->n_reused += new == old;
	first->n_early += new == old &&r == CUDA_ERROR_NOT_READY;
	return new;
}

void first_print(const struct first *first, size_t wrong)
{
	app_say("wrong words", "%zu, handed out early: %u", wrong, first->n_early);
	app_fact("reused", first->n_reused);
	app_report_driver();
}
