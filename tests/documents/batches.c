/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * A data set that is much larger than the GPU, or than the part of it that one may use: batch by batch through two
 * streams, so that one is copied while the other is worked on. A batch has its own pinned and device memory, which it
 * frees as soon as it has submitted its work: without a pool each of these frees waits for that work, so that nothing
 * overlaps, and each allocation is the driver's. With one, no more memory is used than for a few batches, however
 * many there are.
 *
 * The work counts the words that are not those of the batch; a few are not, in every other one.
 */

#include "api/gpupool.h"
#include "tests/apps/kernels.h"
#include "tests/preload/app.h"

enum { BATCHES = 64, STREAMS = 2, ODD_WORDS = 3, BLOCKS = 512, THREADS = 256 };

struct batch {
	CUstream stream;
	uint32_t *data;	   /* pinned, on its way to the device */
	uint64_t *n_wrong; /* pinned, on its way back */
};

static CUfunction count_wrong;

static void start(void)
{
	CUcontext context;
	CUmodule module;

	APP_MUST(cuInit(0));
	APP_MUST(cuDevicePrimaryCtxRetain(&context, 0));
	APP_MUST(cuCtxSetCurrent(context));
	APP_MUST(cuModuleLoadData(&module, kernels_ptx));
	APP_MUST(cuModuleGetFunction(&count_wrong, module, "count_wrong"));
}

/* What is taken from the driver: by the pool, or of all that the device has. */
static size_t memory_in_use(void)
{
	struct gpupool_status status;
	size_t free_bytes, total_bytes;

	if (!gpupool_get_status(0, &status))
		return status.total_bytes;
	APP_MUST(cuMemGetInfo_v2(&free_bytes, &total_bytes));
	return total_bytes - free_bytes;
}

/* In place of reading a file. */
static void load(uint32_t *data, uint64_t words, unsigned number)
{
	for (uint64_t i = 0; i < words; i++)
		data[i] = number;
	for (uint64_t i = 0; i < ODD_WORDS && number % 2; i++)
		data[i * 1000] = ~number;
}

/* Returns the memory in use meanwhile. */
static size_t submit(struct batch *batch, unsigned number, size_t bytes)
{
	uint64_t words = bytes / sizeof(uint32_t);
	size_t in_use;
	CUdeviceptr data, n_wrong;

	APP_MUST(cuMemHostAlloc((void **)&batch->data, bytes, 0));
	APP_MUST(cuMemHostAlloc((void **)&batch->n_wrong, sizeof(*batch->n_wrong), 0));
	load(batch->data, words, number);
	APP_MUST(cuMemAlloc_v2(&data, bytes));
	APP_MUST(cuMemAlloc_v2(&n_wrong, sizeof(*batch->n_wrong)));
	APP_MUST(cuMemcpyHtoDAsync_v2(data, batch->data, bytes, batch->stream));
	APP_MUST(cuMemsetD32Async(n_wrong, 0, 2, batch->stream));
	APP_MUST(cuLaunchKernel(count_wrong, BLOCKS, 1, 1, THREADS, 1, 1, 0, batch->stream,
		(void *[]){&data, &words, &number, &n_wrong}, NULL));
	APP_MUST(cuMemcpyDtoHAsync_v2(batch->n_wrong, n_wrong, sizeof(*batch->n_wrong), batch->stream));
	in_use = memory_in_use();
	APP_MUST(cuMemFree_v2(data));
	APP_MUST(cuMemFree_v2(n_wrong));
	return in_use;
}

/* The host memory is in use until the work is done. */
static uint64_t collect(struct batch *batch)
{
	uint64_t n_wrong;

	APP_MUST(cuStreamSynchronize(batch->stream));
	n_wrong = *batch->n_wrong;
	APP_MUST(cuMemFreeHost(batch->data));
	APP_MUST(cuMemFreeHost(batch->n_wrong));
	return n_wrong;
}

static void run(size_t bytes)
{
	struct batch batches[STREAMS];
	size_t before, most = 0, early = 0;
	uint64_t n_wrong = 0, start_ns;

	start();
	before = memory_in_use();
	for (int i = 0; i < STREAMS; i++)
		APP_MUST(cuStreamCreate(&batches[i].stream, CU_STREAM_NON_BLOCKING));
	start_ns = app_now_ns();
	for (unsigned i = 0; i < BATCHES; i++) {
		size_t in_use;

		if (i >= STREAMS)
			n_wrong += collect(&batches[i % STREAMS]);
		in_use = submit(&batches[i % STREAMS], i, bytes) - before;
		most = in_use > most ? in_use : most;
		early = i < BATCHES / 8 ? most : early;
	}
	for (int i = 0; i < STREAMS; i++)
		n_wrong += collect(&batches[i]);
	printf("batches n=%d bytes=%zu odd=%llu early_bytes=%zu most_bytes=%zu ns=%llu\n", BATCHES, bytes,
		(unsigned long long)n_wrong, early, most, (unsigned long long)(app_now_ns() - start_ns));
}

static void small(void)
{
	run(4 * MIB);
}

static void large(void)
{
	run(64 * MIB);
}

const struct app_scenario app_scenarios[] = {
	{"small", small},
	{"large", large},
	{NULL},
};
