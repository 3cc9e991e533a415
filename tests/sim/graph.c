/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Graphs run their operations one by one in the order of capture, which is valid for every graph. Clones and
 * executables get the references to user objects that the graph has at that time.
 */

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
	bytes = sim_alloc(op->bytes);
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

/* The destructor may call no function of the driver, as in a host function. */
static void release_user(struct sim_user *user, unsigned count)
{
	struct sim_thread *self = sim_thread_self();
	bool in_host_func = self->in_host_func;

	user->n_refs -= count;
	if (user->n_refs)
		return;
	self->in_host_func = true;
	user->destroy(user->ptr);
	self->in_host_func = in_host_func;
	sim_object_free(user);
}

static void add_ref(struct sim_graph *graph, struct sim_user *user, unsigned count)
{
	sim_grow(&graph->refs, &graph->refs_capacity, graph->n_refs + 1, sizeof(*graph->refs));
	graph->refs[graph->n_refs++] = (struct sim_user_ref){user, count};
}

static void clone_refs(struct sim_graph *to, const struct sim_graph *from)
{
	for (unsigned i = 0; i < from->n_refs; i++) {
		from->refs[i].user->n_refs++;
		add_ref(to, from->refs[i].user, 1);
	}
}

void sim_graph_free(struct sim_graph *graph)
{
	for (unsigned i = 0; i < graph->n_refs; i++)
		release_user(graph->refs[i].user, graph->refs[i].count);
	free(graph->refs);
	for (unsigned i = 0; i < graph->n; i++) {
		free(graph->ops[i].staged);
		if (graph->ops[i].block && --graph->ops[i].block->n_graphs == 0)
			sim_pool_take_back(graph->ops[i].block);
	}
	free(graph->ops);
	sim_nodes_free(graph);
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

static void copy_graph(struct sim_graph *to, const struct sim_graph *from)
{
	for (unsigned i = 0; i < from->n; i++) {
		struct sim_op op = from->ops[i];

		op.staged = staged_copy(&op);
		sim_graph_add(to, &op);
	}
	clone_refs(to, from);
}

/* The driver examines the addresses of a graph. Memory must be mapped at those that are reserved. */
static void examine(const struct sim_graph *graph)
{
	for (unsigned i = 0; i < graph->n; i++) {
		for (unsigned k = 0; k < graph->ops[i].n_accesses; k++) {
			const struct sim_access *access = &graph->ops[i].accesses[k];
			const struct sim_block *block = sim_block_at(access->lo);

			if (!sim_virtual_bytes(access->lo) || (block && access->hi <= sim_block_reach(block)))
				continue;
			sim.invalid_uses++;
			sim_print("invalid use: %s examines %#llx of %s, where no memory is mapped", sim_call_name(),
				(unsigned long long)access->lo, graph->ops[i].name);
		}
	}
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec *handle, CUgraph graph_handle, unsigned long long flags)
{
	struct sim_graph *graph = sim_object_of(graph_handle, SIM_GRAPH), *exec;

	SIM_BEGIN(cuGraphInstantiateWithFlags);
	if (!handle || !graph)
		return CUDA_ERROR_INVALID_VALUE;
	examine(graph);
	exec = sim_object_new(SIM_EXEC, sizeof(*exec));
	exec->is_exec = true;
	copy_graph(exec, graph);
	*handle = (CUgraphExec)exec;
	return CUDA_SUCCESS;
}

CUresult cuGraphClone(CUgraph *handle, CUgraph graph_handle)
{
	struct sim_graph *graph = sim_object_of(graph_handle, SIM_GRAPH), *clone;

	SIM_BEGIN(cuGraphClone);
	if (!handle || !graph)
		return CUDA_ERROR_INVALID_VALUE;
	clone = sim_graph_new();
	copy_graph(clone, graph);
	*handle = (CUgraph)clone;
	return CUDA_SUCCESS;
}

CUresult cuUserObjectCreate(CUuserObject *handle, void *ptr, CUhostFn destroy, unsigned count, unsigned flags)
{
	struct sim_user *user;

	SIM_BEGIN(cuUserObjectCreate);
	if (!handle || !destroy || !count || flags != CU_USER_OBJECT_NO_DESTRUCTOR_SYNC)
		return CUDA_ERROR_INVALID_VALUE;
	user = sim_object_new(SIM_USER, sizeof(*user));
	user->ptr = ptr;
	user->destroy = destroy;
	user->n_refs = count;
	*handle = (CUuserObject)user;
	return CUDA_SUCCESS;
}

CUresult cuUserObjectRetain(CUuserObject handle, unsigned count)
{
	struct sim_user *user = sim_object_of(handle, SIM_USER);

	SIM_BEGIN(cuUserObjectRetain);
	if (!user || !count)
		return CUDA_ERROR_INVALID_VALUE;
	user->n_refs += count;
	return CUDA_SUCCESS;
}

CUresult cuUserObjectRelease(CUuserObject handle, unsigned count)
{
	struct sim_user *user = sim_object_of(handle, SIM_USER);

	SIM_BEGIN(cuUserObjectRelease);
	if (!user || !count || count > user->n_refs)
		return CUDA_ERROR_INVALID_VALUE;
	release_user(user, count);
	return CUDA_SUCCESS;
}

CUresult cuGraphRetainUserObject(CUgraph graph_handle, CUuserObject handle, unsigned count, unsigned flags)
{
	struct sim_graph *graph = sim_object_of(graph_handle, SIM_GRAPH);
	struct sim_user *user = sim_object_of(handle, SIM_USER);

	SIM_BEGIN(cuGraphRetainUserObject);
	if (!graph || !user || !count || flags & ~(unsigned)CU_GRAPH_USER_OBJECT_MOVE)
		return CUDA_ERROR_INVALID_VALUE;
	if (flags & CU_GRAPH_USER_OBJECT_MOVE && count > user->n_refs)
		return CUDA_ERROR_INVALID_VALUE;
	if (!(flags & CU_GRAPH_USER_OBJECT_MOVE))
		user->n_refs += count;
	add_ref(graph, user, count);
	return CUDA_SUCCESS;
}

static CUresult release_from(struct sim_graph *graph, struct sim_user *user, unsigned count)
{
	for (unsigned i = 0; i < graph->n_refs; i++) {
		struct sim_user_ref *ref = &graph->refs[i];

		if (ref->user != user || ref->count < count)
			continue;
		ref->count -= count;
		if (!ref->count)
			*ref = graph->refs[--graph->n_refs];
		release_user(user, count);
		return CUDA_SUCCESS;
	}
	return CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphReleaseUserObject(CUgraph graph_handle, CUuserObject handle, unsigned count)
{
	struct sim_graph *graph = sim_object_of(graph_handle, SIM_GRAPH);
	struct sim_user *user = sim_object_of(handle, SIM_USER);

	SIM_BEGIN(cuGraphReleaseUserObject);
	return graph && user && count ? release_from(graph, user, count) : CUDA_ERROR_INVALID_VALUE;
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
