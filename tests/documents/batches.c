/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Processes a data set that is much larger than the GPU's memory, or than the program's share of it. The batches go
 * through two streams, so that one batch is copied while the GPU works on the other. Each batch has its own pinned and
 * device memory, and frees the device memory as soon as its work is submitted. Without a pool each of these frees waits
 * for that work, so that nothing overlaps, and each allocation is a call of the driver. With a pool nothing waits, and
 * the program uses memory for a few batches, no matter how many there are.
 *
 * The work of a batch counts the words that differ from the number of the batch. Every second batch has a few of them.
 */

#include "api/gpupool.h"
#include "tests/apps/kernels.h"
#include "tests/preload/app.h"

enum { BATCHES = 64, STREAMS = 2, WRONG_WORDS = 3, BLOCKS = 512, THREADS = 256 };

struct batch {
	CUstream stream;
	uint32_t *data;    /* pinned, copied to the device */
	uint64_t *n_wrong; /* pinned, copied back from the device */
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

/* Returns the memory taken from the driver: by the pool, or, without gpupool, on the whole device. */
static size_t memory_in_use(void)
{
	struct gpupool_status status;
	size_t free_bytes, total_bytes;

	if (!gpupool_get_status(0, &status))
		return status.total_bytes;
	APP_MUST(cuMemGetInfo_v2(&free_bytes, &total_bytes));
	return total_bytes - free_bytes;
}

/* Stands for reading a file. */
static void load(uint32_t *data, uint64_t words, unsigned number)
{
	for (uint64_t i = 0; i < words; i++)
		data[i] = number;
	for (uint64_t i = 0; i < WRONG_WORDS && number % 2; i++)
		data[i * 1000] = ~number;
}

/* Submits a batch and frees its device memory. Returns the memory in use before the frees. */
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

/* Waits for the work of a batch, because the GPU uses the pinned memory until then, and frees that memory. */
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
	size_t before, peak = 0, early = 0;
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
		peak = in_use > peak ? in_use : peak;
		early = i < BATCHES / 8 ? peak : early;
	}
	for (int i = 0; i < STREAMS; i++)
		n_wrong += collect(&batches[i]);
	printf("batches n=%d bytes=%zu wrong=%llu early_bytes=%zu peak_bytes=%zu ns=%llu\n", BATCHES, bytes,
		(unsigned long long)n_wrong, early, peak, (unsigned long long)(app_now_ns() - start_ns));
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
