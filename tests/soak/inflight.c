/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Blocks that are freed while the call that submitted work on them is still running. A thread launches a graph that
 * sets a flag and then fills a block. The first thread that sees the flag frees the block and allocates again, perhaps
 * before the launch has returned.
 */

#include "soak.h"

enum { N_LAUNCHES = 4, N_QUERIES = 64, SLOW_NS = 1000000 };

struct launch {
	struct soak_block block; /* ptr 0: this entry is free */
	uint32_t *flag;          /* pinned; the GPU sets it to 1 */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct launch launches[N_LAUNCHES];
static _Atomic unsigned n_launches;

static bool store_launch(const struct launch *launch)
{
	bool is_stored = false;

	pthread_mutex_lock(&lock);
	for (unsigned i = 0; i < N_LAUNCHES && !is_stored; i++) {
		if (!launches[i].block.ptr) {
			launches[i] = *launch;
			is_stored = true;
		}
	}
	n_launches += is_stored;
	pthread_mutex_unlock(&lock);
	return is_stored;
}

/* Takes a launch that has begun to run on the GPU. Returns false if there is none. */
static bool take_running(struct launch *launch)
{
	bool is_found = false;

	pthread_mutex_lock(&lock);
	for (unsigned i = 0; i < N_LAUNCHES && !is_found; i++) {
		if (launches[i].block.ptr && __atomic_load_n(launches[i].flag, __ATOMIC_ACQUIRE) == 1) {
			*launch = launches[i];
			launches[i].block.ptr = 0;
			is_found = true;
		}
	}
	n_launches -= is_found;
	pthread_mutex_unlock(&lock);
	return is_found;
}

static CUgraphExec make_graph(const struct launch *launch, CUstream stream, struct soak_random *random)
{
	struct soak_block flag = {
		.ptr = (uintptr_t)launch->flag, .context = launch->block.context, .value = 1, .words = 1};
	CUgraphExec exec = NULL;
	CUgraph graph = NULL;
	CUresult flagged, filled, ended;

	SOAK_MUST(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	flagged = soak_fill_locked(&flag, stream, random);
	filled = soak_slow_fill_locked(&launch->block, stream, SLOW_NS);
	ended = cuStreamEndCapture(stream, &graph);
	if (flagged || filled || ended) {
		soak_wrong("capture of a graph to launch invalidated, CUDA error", ended);
		return NULL;
	}
	SOAK_MUST(cuGraphInstantiateWithFlags(&exec, graph, 0));
	SOAK_MUST(cuGraphDestroy(graph));
	return exec;
}

static void launch_locked(struct soak_block *block, struct soak_stream *stream, struct soak_random *random)
{
	struct launch launch = {.block = *block, .flag = soak_alloc_pinned(sizeof(uint32_t))};
	CUgraphExec exec;

	if (!launch.flag)
		return;
	*launch.flag = 0;
	launch.block.value = soak_random(random);
	launch.block.generation = stream->generation;
	exec = make_graph(&launch, stream->handle, random);
	if (exec && store_launch(&launch)) {
		block->ptr = 0; /* from here on the block belongs to the thread that sees the flag */
		SOAK_MUST(cuGraphLaunch(exec, stream->handle));
	} else {
		SOAK_MUST(cuMemFreeHost(launch.flag));
	}
	if (exec)
		SOAK_MUST(cuGraphExecDestroy(exec));
}

void soak_inflight_launch(struct soak_block *block, struct soak_random *random)
{
	struct soak_stream *stream = &soak_contexts[block->context].streams[block->stream];

	if (!block->stream || !block->words || n_launches == N_LAUNCHES)
		return;
	pthread_rwlock_rdlock(&soak_capture_lock);
	pthread_mutex_lock(&stream->lock);
	if (block->generation > stream->lost)
		launch_locked(block, stream, random);
	pthread_mutex_unlock(&stream->lock);
	pthread_rwlock_unlock(&soak_capture_lock);
}

/*
 * Waits a moment for a launch that has begun to run. This thread submits nothing meanwhile, so that a fence that
 * gpupool recorded before, or when the thread's own block was freed, stays the last one.
 */
static bool await_running(struct launch *launch, struct soak_block *own, struct soak_random *random)
{
	size_t unused[2];

	if (!n_launches)
		return false;
	if (own->ptr && soak_one_in(random, 4)) {
		soak_use_context(&soak_contexts[own->context]);
		soak_block_free(own, random);
	}
	for (unsigned i = 0; n_launches && i < N_QUERIES; i++) {
		if (take_running(launch))
			return true;
		SOAK_MUST(cuMemGetInfo_v2(&unused[0], &unused[1])); /* simulated time passes only inside the driver */
	}
	return false;
}

/* Frees the block and the flag, but not during a capture in the global mode: the driver may refuse a free then. */
static void free_launch(const struct launch *launch)
{
	soak_use_context(&soak_contexts[launch->block.context]);
	pthread_rwlock_rdlock(&soak_capture_lock);
	SOAK_MUST(cuMemFree_v2(launch->block.ptr));
	SOAK_MUST(cuMemFreeHost(launch->flag));
	pthread_rwlock_unlock(&soak_capture_lock);
}

/* Likewise, since no thread would know the block after a refusal. */
static void free_next(struct soak_block *next, struct soak_random *random)
{
	pthread_rwlock_rdlock(&soak_capture_lock);
	soak_block_free(next, random);
	pthread_rwlock_unlock(&soak_capture_lock);
}

void soak_inflight_free(struct soak_block *own, struct soak_random *random)
{
	struct soak_block next;
	struct launch launch;

	if (!await_running(&launch, own, random))
		return;
	free_launch(&launch);
	soak_count(SOAK_INFLIGHT);
	if (!soak_block_alloc(&next, launch.block.context, launch.block.bytes, random))
		return;
	soak_block_fill(&next, random);
	if (own->ptr)
		free_next(&next, random);
	else
		*own = next;
}

void soak_inflight_end(void)
{
	struct launch launch;

	for (unsigned i = 0; i < soak_n_contexts; i++) {
		soak_use_context(&soak_contexts[i]);
		SOAK_MUST(cuCtxSynchronize());
	}
	while (take_running(&launch))
		free_launch(&launch);
}
