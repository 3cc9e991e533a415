/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Graphs run their operations one by one in the order of capture, which is valid for every graph. */

#include <stdlib.h>
#include <string.h>

#include "capture.h"

struct sim_graph *sim_graph_new(void)
{
	return sim_object_new(SIM_GRAPH, sizeof(struct sim_graph));
}

static void *staged_copy(const struct sim_op *op)
{
	void *bytes;

	if (!op->staged)
		return NULL;
	bytes = sim_alloc_zeroed(1, op->bytes + 1);
	memcpy(bytes, op->staged, op->bytes);
	return bytes;
}

/* Takes ownership of the operation's staged bytes. */
void sim_graph_add(struct sim_graph *graph, const struct sim_op *op)
{
	if (op->block)
		op->block->n_graphs++;
	sim_grow(&graph->ops, &graph->capacity, graph->n + 1, sizeof(*graph->ops));
	graph->ops[graph->n++] = *op;
}

void sim_graph_free(struct sim_graph *graph)
{
	for (unsigned i = 0; i < graph->n; i++) {
		free(graph->ops[i].staged);
		if (graph->ops[i].block && --graph->ops[i].block->n_graphs == 0)
			sim_pool_take_back(graph->ops[i].block);
	}
	free(graph->ops);
	sim_object_free(graph);
}

CUresult cuGraphCreate(CUgraph *handle, unsigned flags)
{
	SIM_BEGIN(cuGraphCreate);
	if (!handle || flags)
		return CUDA_ERROR_INVALID_VALUE;
	*handle = (CUgraph)sim_graph_new();
	return CUDA_SUCCESS;
}

CUresult cuGraphDestroy(CUgraph handle)
{
	struct sim_graph *graph = sim_object_of(handle, SIM_GRAPH);

	SIM_BEGIN(cuGraphDestroy);
	if (!graph)
		return CUDA_ERROR_INVALID_VALUE;
	sim_graph_free(graph);
	return CUDA_SUCCESS;
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec *handle, CUgraph graph_handle, unsigned long long flags)
{
	struct sim_graph *graph = sim_object_of(graph_handle, SIM_GRAPH), *exec;

	SIM_BEGIN(cuGraphInstantiateWithFlags);
	if (!handle || !graph)
		return CUDA_ERROR_INVALID_VALUE;
	exec = sim_object_new(SIM_EXEC, sizeof(*exec));
	exec->is_exec = true;
	for (unsigned i = 0; i < graph->n; i++) {
		struct sim_op op = graph->ops[i];

		op.staged = staged_copy(&op);
		sim_graph_add(exec, &op);
	}
	*handle = (CUgraphExec)exec;
	return CUDA_SUCCESS;
}

CUresult cuGraphExecDestroy(CUgraphExec handle)
{
	struct sim_graph *exec = sim_object_of(handle, SIM_EXEC);

	SIM_BEGIN(cuGraphExecDestroy);
	if (!exec)
		return CUDA_ERROR_INVALID_VALUE;
	sim_graph_free(exec);
	return CUDA_SUCCESS;
}

static CUresult launch(CUgraphExec handle, CUstream stream_handle, bool per_thread)
{
	struct sim_graph *exec = sim_object_of(handle, SIM_EXEC);
	struct sim_stream *stream;

	if (!exec)
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(sim_stream_of(stream_handle, per_thread, &stream));
	for (unsigned i = 0; i < exec->n; i++) {
		struct sim_op op = exec->ops[i];

		op.staged = staged_copy(&op);
		SIM_TRY(sim_stream_submit(stream, &op));
	}
	return CUDA_SUCCESS;
}

SIM_STREAM_PAIR(cuGraphLaunch, _ptsz, (CUgraphExec exec, CUstream stream), launch(exec, stream, per_thread))
