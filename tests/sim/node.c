/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Nodes that a program adds to a graph: copies and memsets of one row, which run in the order of the calls. The driver
 * examines their addresses at once, as if the work were submitted in the node's context.
 */

#include <stdlib.h>

#include "capture.h"

struct sim_node {
	struct sim_object object;
	struct sim_graph *graph;
	unsigned index; /* of its operation */
};

static CUresult build_copy(struct sim_ctx *ctx, const CUDA_MEMCPY3D *copy, struct sim_op *op)
{
	uint64_t dst, src;

	if (copy->Height != 1 || copy->Depth != 1 || copy->dstXInBytes || copy->srcXInBytes)
		return CUDA_ERROR_NOT_SUPPORTED;
	dst = copy->dstMemoryType == CU_MEMORYTYPE_HOST ? (uint64_t)(uintptr_t)copy->dstHost : copy->dstDevice;
	src = copy->srcMemoryType == CU_MEMORYTYPE_HOST ? (uint64_t)(uintptr_t)copy->srcHost : copy->srcDevice;
	return sim_copy_build(ctx, dst, src, copy->WidthInBytes, op);
}

static CUresult build_fill(struct sim_ctx *ctx, const CUDA_MEMSET_NODE_PARAMS_v2 *fill, struct sim_op *op)
{
	if (fill->height != 1 || (fill->elementSize != 1 && fill->elementSize != 4))
		return CUDA_ERROR_NOT_SUPPORTED;
	return sim_fill_build(ctx, fill->dst, fill->value, fill->elementSize, fill->width, op);
}

static bool is_buildable(const CUgraphNodeParams *params)
{
	return params->type == CU_GRAPH_NODE_TYPE_MEMCPY || params->type == CU_GRAPH_NODE_TYPE_MEMSET;
}

/* Builds the operation of a node that copies or sets memory. */
static CUresult build(struct sim_ctx *ctx, const CUgraphNodeParams *params, struct sim_op *op)
{
	if (!is_buildable(params))
		return CUDA_ERROR_INVALID_VALUE;
	return params->type == CU_GRAPH_NODE_TYPE_MEMCPY ? build_copy(ctx, &params->memcpy.copyParams, op)
							 : build_fill(ctx, &params->memset, op);
}

/* Without a copy or a fill, the parameters are those of no node that can be built. */
static CUgraphNodeParams of_copy(const CUDA_MEMCPY3D *copy, CUcontext ctx)
{
	if (!copy)
		return (CUgraphNodeParams){0};
	return (CUgraphNodeParams){
		.type = CU_GRAPH_NODE_TYPE_MEMCPY,
		.memcpy = {.copyCtx = ctx, .copyParams = *copy},
	};
}

static CUgraphNodeParams of_fill(const CUDA_MEMSET_NODE_PARAMS *fill, CUcontext ctx)
{
	if (!fill)
		return (CUgraphNodeParams){0};
	return (CUgraphNodeParams){
		.type = CU_GRAPH_NODE_TYPE_MEMSET,
		.memset = {fill->dst, fill->pitch, fill->value, fill->elementSize, fill->width, fill->height, ctx},
	};
}

static CUresult add(CUgraphNode *handle, CUgraph graph_handle, const CUgraphNodeParams *params)
{
	struct sim_graph *graph = sim_object_of(graph_handle, SIM_GRAPH);
	struct sim_op op = {0};
	struct sim_node *node;
	struct sim_ctx *ctx;

	if (!handle || !graph || !params || !is_buildable(params))
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(sim_ctx_of(
		params->type == CU_GRAPH_NODE_TYPE_MEMCPY ? params->memcpy.copyCtx : params->memset.ctx, &ctx));
	SIM_TRY(build(ctx, params, &op));
	node = sim_object_new(SIM_NODE, sizeof(*node));
	node->graph = graph;
	node->index = graph->n;
	sim_graph_add(graph, &op);
	sim_grow(&graph->nodes, &graph->nodes_capacity, graph->n_nodes + 1, sizeof(*graph->nodes));
	graph->nodes[graph->n_nodes++] = node;
	*handle = (CUgraphNode)node;
	return CUDA_SUCCESS;
}

void sim_nodes_free(struct sim_graph *graph)
{
	for (unsigned i = 0; i < graph->n_nodes; i++)
		sim_object_free(graph->nodes[i]);
	free(graph->nodes);
}

/* Returns the device of the memory there, or NULL: memory of the host, or mapped memory if that is to be left out. */
static const struct sim_device *device_of(uint64_t addr, bool is_mapped_too)
{
	const struct sim_block *block = sim_block_at(addr);

	if (!block || block->kind > SIM_MANAGED)
		return NULL;
	if (block->ctx)
		return block->ctx->device;
	return is_mapped_too ? block->device : NULL;
}

static bool differs(uint64_t old, uint64_t addr, bool is_mapped_too)
{
	const struct sim_device *from = device_of(old, is_mapped_too), *to = device_of(addr, is_mapped_too);

	return from && to && from != to;
}

/*
 * True if the work would go from memory of one device to that of another, which the driver refuses for a node of an
 * executable graph. It does not refuse it for a memset of mapped memory. Measured on H100.
 */
static bool leaves_device(const struct sim_op *old, const struct sim_op *op)
{
	if (op->kind == SIM_FILL)
		return differs(old->dst, op->dst, false);
	return differs(old->dst, op->dst, true) || differs(old->src, op->src, true);
}

/*
 * Gives the node other work of the same kind, in the graph that it was added to or in an executable one, which must
 * have been made of that. It stays in the context that it was added with.
 */
static CUresult change_in(struct sim_graph *graph, const struct sim_node *node, const CUgraphNodeParams *params)
{
	struct sim_op op = {0}, *old;

	if (!graph || !node || !params || node->index >= graph->n)
		return CUDA_ERROR_INVALID_VALUE;
	old = &graph->ops[node->index];
	SIM_TRY(sim_ctx_check(old->ctx));
	SIM_TRY(build(old->ctx, params, &op));
	if (old->kind != op.kind || (graph->is_exec && leaves_device(old, &op)))
		return CUDA_ERROR_INVALID_VALUE;
	*old = op;
	return CUDA_SUCCESS;
}

static CUresult change(CUgraphNode handle, const CUgraphNodeParams *params)
{
	const struct sim_node *node = sim_object_of(handle, SIM_NODE);

	return change_in(node ? node->graph : NULL, node, params);
}

static CUresult change_executable(CUgraphExec exec, CUgraphNode node, const CUgraphNodeParams *params)
{
	return change_in(sim_object_of(exec, SIM_EXEC), sim_object_of(node, SIM_NODE), params);
}

CUresult cuGraphAddMemcpyNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t n,
	const CUDA_MEMCPY3D *copy, CUcontext ctx)
{
	CUgraphNodeParams params = of_copy(copy, ctx);

	SIM_BEGIN(cuGraphAddMemcpyNode);
	return add(node, graph, &params);
}

CUresult cuGraphAddMemsetNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t n,
	const CUDA_MEMSET_NODE_PARAMS *fill, CUcontext ctx)
{
	CUgraphNodeParams params = of_fill(fill, ctx);

	SIM_BEGIN(cuGraphAddMemsetNode);
	return add(node, graph, &params);
}

CUresult cuGraphAddNode(
	CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t n, CUgraphNodeParams *params)
{
	SIM_BEGIN(cuGraphAddNode);
	return add(node, graph, params);
}

CUresult cuGraphAddNode_v2(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, const void *edges,
	size_t n, CUgraphNodeParams *params)
{
	SIM_BEGIN(cuGraphAddNode_v2);
	return add(node, graph, params);
}

CUresult cuGraphMemcpyNodeSetParams(CUgraphNode node, const CUDA_MEMCPY3D *copy)
{
	CUgraphNodeParams params = of_copy(copy, NULL);

	SIM_BEGIN(cuGraphMemcpyNodeSetParams);
	return change(node, &params);
}

CUresult cuGraphMemsetNodeSetParams(CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS *fill)
{
	CUgraphNodeParams params = of_fill(fill, NULL);

	SIM_BEGIN(cuGraphMemsetNodeSetParams);
	return change(node, &params);
}

CUresult cuGraphNodeSetParams(CUgraphNode node, CUgraphNodeParams *params)
{
	SIM_BEGIN(cuGraphNodeSetParams);
	return change(node, params);
}

CUresult cuGraphExecMemcpyNodeSetParams(CUgraphExec exec, CUgraphNode node, const CUDA_MEMCPY3D *copy, CUcontext ctx)
{
	CUgraphNodeParams params = of_copy(copy, ctx);

	SIM_BEGIN(cuGraphExecMemcpyNodeSetParams);
	return change_executable(exec, node, &params);
}

CUresult cuGraphExecMemsetNodeSetParams(
	CUgraphExec exec, CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS *fill, CUcontext ctx)
{
	CUgraphNodeParams params = of_fill(fill, ctx);

	SIM_BEGIN(cuGraphExecMemsetNodeSetParams);
	return change_executable(exec, node, &params);
}

CUresult cuGraphExecNodeSetParams(CUgraphExec exec, CUgraphNode node, CUgraphNodeParams *params)
{
	SIM_BEGIN(cuGraphExecNodeSetParams);
	return change_executable(exec, node, params);
}
