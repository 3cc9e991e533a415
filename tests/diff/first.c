/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "first.h"

void first_init(struct first *first, struct place *place)
{
	*first = (struct first){.place = place, .slow = place_stream(place)};
	PLACE_MUST(cuEventCreate(&first->done, CU_EVENT_DISABLE_TIMING));
	(void)place_stream(place); /* a second stream: reuse then needs a GPU wait */
}

void first_expect_long(void)
{
	setenv("SIMGPU_LATENCY", "cuEventQuery=10000000,cuStreamQuery=10000000", 1);
}

CUdeviceptr first_take_over(struct first *first, size_t bytes, uint64_t ns)
{
	CUdeviceptr old = place_alloc(first->place, bytes), new;
	CUresult r;

	place_spin_fill(first->place, first->slow, old, FIRST_TOUCHED, 0xdead, ns);
	PLACE_MUST(cuEventRecord(first->done, first->slow));
	PLACE_MUST(cuMemFree_v2(old));
	new = place_alloc(first->place, bytes);
	r = cuEventQuery(first->done);
	first->n_reused += new == old;
	first->n_early += new == old &&r == CUDA_ERROR_NOT_READY;
	return new;
}

void first_say(const struct first *first, size_t wrong)
{
	app_say("wrong words", "%zu, handed out early: %u", wrong, first->n_early);
	app_fact("reused", first->n_reused);
	app_tell_driver();
}
