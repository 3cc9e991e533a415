/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Memory that is freed while the GPU still works on it, and allocated again for another stream. */

#include "app_driver.h"

enum { ROUNDS = 48, SLOW_NS = 50000 };

static const size_t bytes = 4 * MIB;	/* of a block */
static const size_t touched = 64 * KIB; /* of it, by each kernel: enough for a race */

/* A slow kernel writes the old block while a quick one, on a stream that knows nothing of it, writes the new. */
static void streams(void)
{
	CUstream slow, quick;
	size_t wrong = 0;

	app_start();
	slow = app_stream();
	quick = app_stream();
	for (unsigned i = 0; i < ROUNDS; i++) {
		CUdeviceptr old = app_alloc(bytes), new;

		app_spin_fill(slow, old, touched, 0xdead, SLOW_NS);
		APP_MUST(cuMemFree_v2(old));
		new = app_alloc(bytes);
		app_fill(quick, new, touched, i);
		wrong += app_count_wrong(quick, new, touched, i);
		APP_MUST(cuMemFree_v2(new));
	}
	APP_MUST(cuCtxSynchronize());
	printf("wrong words: %zu\n", wrong);
	app_pause("done");
	app_tell_driver();
}

/* The same with the CPU as the first to touch: a copy is still on its way into the pinned block that is freed. */
static void pinned(void)
{
	CUdeviceptr source;
	CUstream stream;
	size_t wrong = 0;

	app_start();
	stream = app_stream();
	source = app_alloc(bytes);
	app_fill(stream, source, touched, 0xdead);
	for (unsigned i = 0; i < ROUNDS; i++) {
		uint32_t *old, *new;

		APP_MUST(cuMemHostAlloc((void **)&old, bytes, 0));
		app_spin(stream, SLOW_NS);
		APP_MUST(cuMemcpyDtoHAsync_v2(old, source, touched, stream));
		APP_MUST(cuMemFreeHost(old));
		APP_MUST(cuMemHostAlloc((void **)&new, bytes, 0));
		for (size_t k = 0; k < touched / 4; k++)
			new[k] = i;
		APP_MUST(cuStreamSynchronize(stream));
		for (size_t k = 0; k < touched / 4; k++)
			wrong += new[k] != i;
		APP_MUST(cuMemFreeHost(new));
	}
	printf("wrong words: %zu\n", wrong);
	app_tell_driver();
}

/*
 * A kernel of one context still writes the block of another when it is freed, which the driver's own free does not wait
 * for: where the library is not, such a program is wrong.
 */
static void pinned_elsewhere(void)
{
	unsigned early = 0, reused = 0;
	uint32_t *old, *new = NULL;
	CUcontext other;
	CUstream stream;
	CUevent done;

	app_start();
	stream = app_stream();
	APP_MUST(cuEventCreate(&done, CU_EVENT_DISABLE_TIMING));
	APP_MUST(cuCtxCreate_v2(&other, 0, 0));
	for (unsigned i = 0; i < ROUNDS; i++) {
		uint32_t *last = new;

		APP_MUST(cuMemHostAlloc((void **)&old, bytes, CU_MEMHOSTALLOC_PORTABLE));
		reused += old == last;
		APP_MUST(cuCtxSetCurrent(app_ctx));
		app_spin_fill(stream, (CUdeviceptr)(uintptr_t)old, touched, i, SLOW_NS);
		APP_MUST(cuEventRecord(done, stream));
		APP_MUST(cuCtxSetCurrent(other));
		APP_MUST(cuMemFreeHost(old));
		APP_MUST(cuMemHostAlloc((void **)&new, bytes, CU_MEMHOSTALLOC_PORTABLE));
		early += new == old && cuEventQuery(done) == CUDA_ERROR_NOT_READY;
		APP_MUST(cuEventSynchronize(done));
		APP_MUST(cuMemFreeHost(new));
	}
	app_fact("handed out early", early);
	app_fact("used again", reused);
}

/* One stream alone: what is freed can be had again without any wait. */
static void loop(void)
{
	size_t wrong = 0;

	app_start();
	for (unsigned i = 0; i < ROUNDS; i++) {
		CUdeviceptr ptr = app_alloc(bytes);

		app_spin_fill(NULL, ptr, touched, i, SLOW_NS);
		if (i % 8 == 0)
			wrong += app_count_wrong(NULL, ptr, touched, i);
		APP_MUST(cuMemFree_v2(ptr));
	}
	printf("wrong words: %zu\n", wrong);
	app_tell_driver();
}

const struct app_scenario app_scenarios[] = {
	{"streams", streams},
	{"pinned", pinned},
	{"pinned-elsewhere", pinned_elsewhere},
	{"loop", loop},
	{0},
};
