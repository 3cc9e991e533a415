/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Makes the calls of a trace on stdin, such as tests/traces/cupy.txt, and prints "peak=BYTES ooms=N": the most memory
 * that the preloaded library took from the driver, and its out-of-memory errors. It submits no GPU work. The next
 * allocation of an address that is still allocated hides the block before, which is never freed. With the argument
 * "stream" it makes all calls in stream order, on one stream.
 */

#include <errno.h>
#include <inttypes.h>
#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/gpupool.h"
#include "tests/apps/cuda_min.h"

struct block {
	uint64_t name; /* address in the trace */
	CUdeviceptr ptr;
};

static void *blocks;    /* a tree by name */
static CUstream stream; /* of all calls; NULL: they are not in stream order */

static int compare(const void *a, const void *b)
{
	const struct block *one = a, *other = b;

	return (one->name > other->name) - (one->name < other->name);
}

static void must(int result, const char *what)
{
	if (!result)
		return;
	fprintf(stderr, "play_trace: %s: error %d\n", what, result);
	exit(EXIT_FAILURE);
}

static void allocate(uint64_t name, uint64_t bytes)
{
	struct block *block = calloc(1, sizeof(*block)), **found;
	CUdeviceptr ptr = 0;
	CUresult r = stream ? cuMemAllocAsync(&ptr, bytes, stream) : cuMemAlloc_v2(&ptr, bytes);

	if (r != CUDA_ERROR_OUT_OF_MEMORY)
		must((int)r, "cuMemAlloc");
	if (!block)
		must(ENOMEM, "calloc");
	block->name = name;
	found = tsearch(block, &blocks, compare);
	if (!found)
		must(ENOMEM, "tsearch");
	if (*found != block)
		free(block);
	(*found)->ptr = ptr;
}

static void release(uint64_t name)
{
	struct block key = {.name = name}, **found = tfind(&key, &blocks, compare), *block;

	if (!found)
		return;
	block = *found;
	if (block->ptr)
		must((int)(stream ? cuMemFreeAsync(block->ptr, stream) : cuMemFree_v2(block->ptr)), "cuMemFree");
	tdelete(block, &blocks, compare);
	free(block);
}

int main(int argc, char **argv)
{
	struct gpupool_status status;
	uint64_t name, bytes;
	CUcontext context;
	char line[128];

	must((int)cuInit(0), "cuInit");
	must((int)cuDevicePrimaryCtxRetain(&context, 0), "cuDevicePrimaryCtxRetain");
	must((int)cuCtxSetCurrent(context), "cuCtxSetCurrent");
	if (argc > 1 && !strcmp(argv[1], "stream"))
		must((int)cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
	while (fgets(line, sizeof(line), stdin)) {
		if (sscanf(line, "a %" SCNx64 " %" SCNu64, &name, &bytes) == 2)
			allocate(name, bytes);
		else if (sscanf(line, "f %" SCNx64, &name) == 1)
			release(name);
		else
			must(EINVAL, line);
	}
	must(gpupool_get_status(0, &status), "the library is not preloaded");
	printf("peak=%" PRIu64 " ooms=%" PRIu64 "\n", status.peak_total_bytes, status.ooms);
	while (blocks)
		release((*(struct block **)blocks)->name);
	return EXIT_SUCCESS;
}
