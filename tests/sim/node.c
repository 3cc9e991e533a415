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

static CUresult build_fill(struct sim_ctx *ctx, const CUDA_MEMSET_NODE_PARAMS *fill, struct sim_op *op)
{
	if (fill->height != 1 || (fill->elementSize != 1 && fill->elementSize != 4))
		return CUDA_ERROR_NOT_SUPPORTED;
	return sim_fill_build(ctx, fill->dst, fill->value, fill->elementSize, fill->width, op);
}

static CUresult add(CUgraphNode *handle, CUgraph graph_handle, const struct sim_op *op)
{
	struct sim_graph *graph = sim_object_of(graph_handle, SIM_GRAPH);
	struct sim_node *node;

	if (!graph)
		return CUDA_ERROR_INVALID_VALUE;
	node = sim_object_new(SIM_NODE, sizeof(*node));
	node->graph = graph;
	node->index = graph->n;
	sim_graph_add(graph, op);
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

/* Replaces what the node does by work of the same kind. */
static CUresult change(struct sim_node *node, const struct sim_op *op)
{
	struct sim_op *old = &node->graph->ops[node->index];

	if (old->kind != op->kind)
		return CUDA_ERROR_INVALID_VALUE;
	*old = *op;
	return CUDA_SUCCESS;
}

static CUresult ctx_of_node(CUgraphNode handle, struct sim_node **node, struct sim_ctx **ctx)
{
	*node = sim_object_of(handle, SIM_NODE);
	if (!*node)
		return CUDA_ERROR_INVALID_VALUE;
	*ctx = (*node)->graph->ops[(*node)->index].ctx;
	return sim_ctx_check(*ctx);
}

/* Of the parameters of any node: a copy or a memset. */
static CUresult build_any(struct sim_ctx *ctx, const CUgraphNodeParams *params, struct sim_op *op)
{
	const CUDA_MEMSET_NODE_PARAMS_v2 *set = &params->memset;
	const CUDA_MEMSET_NODE_PARAMS fill = {
		set->dst, set->pitch, set->value, set->elementSize, set->width, set->height};

	if (params->type == CU_GRAPH_NODE_TYPE_MEMCPY)
		return build_copy(ctx, &params->memcpy.copyParams, op);
	return params->type == CU_GRAPH_NODE_TYPE_MEMSET ? build_fill(ctx, &fill, op) : CUDA_ERROR_INVALID_VALUE;
}

static CUresult add_any(CUgraphNode *node, CUgraph graph, const CUgraphNodeParams *params)
{
	struct sim_op op = {0};
	struct sim_ctx *ctx;

	if (!node || !params)
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(sim_ctx_of(
		params->type == CU_GRAPH_NODE_TYPE_MEMCPY ? params->memcpy.copyCtx : params->memset.ctx, &ctx));
	SIM_TRY(build_any(ctx, params, &op));
	return add(node, graph, &op);
}

CUresult cuGraphAddMemcpyNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t n,
	const CUDA_MEMCPY3D *copy, CUcontext handle)
{
	struct sim_op op = {0};
	struct sim_ctx *ctx;

	SIM_BEGIN(cuGraphAddMemcpyNode);
	if (!node || !copy)
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(sim_ctx_of(handle, &ctx));
	SIM_TRY(build_copy(ctx, copy, &op));
	return add(node, graph, &op);
}

CUresult cuGraphAddMemsetNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t n,
	const CUDA_MEMSET_NODE_PARAMS *fill, CUcontext handle)
{
	struct sim_op op = {0};
	struct sim_ctx *ctx;

	SIM_BEGIN(cuGraphAddMemsetNode);
	if (!node || !fill)
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(sim_ctx_of(handle, &ctx));
	SIM_TRY(build_fill(ctx, fill, &op));
	return add(node, graph, &op);
}

CUresult cuGraphAddNode(
	CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t n, CUgraphNodeParams *params)
{
	SIM_BEGIN(cuGraphAddNode);
	return add_any(node, graph, params);
}

CUresult cuGraphAddNode_v2(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, const void *edges,
	size_t n, CUgraphNodeParams *params)
{
	SIM_BEGIN(cuGraphAddNode_v2);
	return add_any(node, graph, params);
}

CUresult cuGraphMemcpyNodeSetParams(CUgraphNode handle, const CUDA_MEMCPY3D *copy)
{
	struct sim_op op = {0};
	struct sim_node *node;
	struct sim_ctx *ctx;

	SIM_BEGIN(cuGraphMemcpyNodeSetParams);
	if (!copy)
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(ctx_of_node(handle, &node, &ctx));
	SIM_TRY(build_copy(ctx, copy, &op));
	return change(node, &op);
}

CUresult cuGraphMemsetNodeSetParams(CUgraphNode handle, const CUDA_MEMSET_NODE_PARAMS *fill)
{
	struct sim_op op = {0};
	struct sim_node *node;
	struct sim_ctx *ctx;

	SIM_BEGIN(cuGraphMemsetNodeSetParams);
	if (!fill)
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(ctx_of_node(handle, &node, &ctx));
	SIM_TRY(build_fill(ctx, fill, &op));
	return change(node, &op);
}

CUresult cuGraphNodeSetParams(CUgraphNode handle, CUgraphNodeParams *params)
{
	struct sim_op op = {0};
	struct sim_node *node;
	struct sim_ctx *ctx;

	SIM_BEGIN(cuGraphNodeSetParams);
	if (!params)
		return CUDA_ERROR_INVALID_VALUE;
	SIM_TRY(ctx_of_node(handle, &node, &ctx));
	SIM_TRY(build_any(ctx, params, &op));
	return change(node, &op);
}
