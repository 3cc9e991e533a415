/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Rare operations: captures, and contexts that exist only for a moment. */

#include "soak.h"

pthread_rwlock_t soak_capture_lock = PTHREAD_RWLOCK_INITIALIZER;

enum { VISIT_BLOCKS = 4, VISIT_BYTES = 64 * 1024, VISIT_WORDS = 256 };

/*
 * Allocates and frees during a capture. Unless the thread's own capture is relaxed, an allocation by the driver fails
 * and invalidates the capture; gpupool serves a cached block even then. With gpupool a free always succeeds.
 */
static void alloc_and_free(struct soak_random *random)
{
	CUdeviceptr ptr;

	if (cuMemAlloc_v2(&ptr, soak_random_bytes(random)) == CUDA_SUCCESS)
		SOAK_MUST(cuMemFree_v2(ptr));
}

static CUgraph capture_locked(struct soak_block *block, CUstream stream, int mode, struct soak_random *random)
{
	bool allocates = mode == CU_STREAM_CAPTURE_MODE_RELAXED && soak_one_in(random, 2);
	CUgraph graph = NULL;
	CUresult r, filled;

	SOAK_MUST(cuStreamBeginCapture_v2(stream, mode));
	filled = soak_fill_locked(block, stream, random);
	if (allocates)
		alloc_and_free(random);
	r = cuStreamEndCapture(stream, &graph);
	if (!r && !filled)
		return graph;
	soak_count(SOAK_INVALIDATED);
	/* A capture in the global mode may be invalidated by another thread's allocation, as without gpupool. */
	if (mode != CU_STREAM_CAPTURE_MODE_GLOBAL)
		soak_wrong("capture invalidated, CUDA error", (unsigned long long)r);
	return NULL;
}

static void replay_locked(CUgraph graph, CUstream stream)
{
	CUgraphExec exec;

	SOAK_MUST(cuGraphInstantiateWithFlags(&exec, graph, 0));
	SOAK_MUST(cuGraphLaunch(exec, stream));
	SOAK_MUST(cuGraphExecDestroy(exec));
	SOAK_MUST(cuGraphDestroy(graph));
	soak_count(SOAK_CAPTURES);
}

void soak_block_capture(struct soak_block *block, struct soak_random *random)
{
	static const int modes[] = {CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
		CU_STREAM_CAPTURE_MODE_RELAXED, CU_STREAM_CAPTURE_MODE_RELAXED};
	struct soak_stream *stream = &soak_contexts[block->context].streams[block->stream];
	int mode = modes[soak_random(random) % LENGTH(modes)];
	struct soak_block after = *block;
	CUgraph graph;

	if (!block->stream || !block->words)
		return;
	if (mode == CU_STREAM_CAPTURE_MODE_GLOBAL)
		pthread_rwlock_wrlock(&soak_capture_lock);
	else
		pthread_rwlock_rdlock(&soak_capture_lock);
	pthread_mutex_lock(&stream->lock);
	if (block->generation > stream->lost) {
		after.value = soak_random(random);
		after.generation = stream->generation;
		graph = capture_locked(&after, stream->handle, mode, random);
		if (graph) {
			replay_locked(graph, stream->handle);
			*block = after;
		}
	}
	pthread_mutex_unlock(&stream->lock);
	pthread_rwlock_unlock(&soak_capture_lock);
}

static void visit_fill(struct soak_context *context, CUdeviceptr ptr, uint32_t value)
{
	uint64_t words = VISIT_WORDS, ns = 20000;

	SOAK_MUST(cuLaunchKernel(
		context->spin_fill, 1, 1, 1, 1, 1, 1, 0, NULL, (void *[]){&ptr, &words, &value, &ns}, NULL));
	SOAK_MUST(cuLaunchKernel(context->count_wrong, 1, 1, 1, 1, 1, 1, 0, NULL,
		(void *[]){&ptr, &words, &value, &context->wrong}, NULL));
}

/* Allocates, fills and frees blocks, and leaves some allocated. */
static void visit_blocks(struct soak_context *context, struct soak_random *random)
{
	CUdeviceptr ptr[VISIT_BLOCKS] = {0};

	for (unsigned i = 0; i < 4 * VISIT_BLOCKS; i++) {
		CUdeviceptr *block = &ptr[i % VISIT_BLOCKS];

		if (*block)
			SOAK_MUST(cuMemFree_v2(*block));
		*block = soak_alloc(VISIT_BYTES);
		if (*block)
			visit_fill(context, *block, soak_random(random));
	}
	if (ptr[0])
		SOAK_MUST(cuMemFree_v2(ptr[0]));
}

/* Destroys a context that has used, just freed and cached blocks. */
void soak_visit_context(struct soak_random *random)
{
	struct soak_context context = {.device = soak_contexts[soak_random(random) % soak_n_contexts].device};
	void *host;

	SOAK_MUST(cuCtxCreate_v2(&context.handle, 0, context.device));
	if (soak_context_init(&context)) {
		visit_blocks(&context, random);
		soak_context_check(&context);
	}
	SOAK_MUST(cuMemHostAlloc(&host, VISIT_BYTES, 0));
	SOAK_MUST(cuMemFreeHost(host));
	SOAK_MUST(cuCtxDestroy_v2(context.handle));
	soak_count(SOAK_ENDED);
	soak_use_context(&soak_contexts[0]);
}
