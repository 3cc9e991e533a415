/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* Peer access that the program has in another way than by cuCtxEnablePeerAccess. */

#include <stdbool.h>

#include "shim/driver/cuda_abi.h"

/*
 * Opens the memory that gpupool has served in place of the driver's pools to work on the device, if the program has
 * given the device access to these pools.
 */
void gp_peer_open_pools(CUdevice device);

/*
 * To be called when the driver has refused a copy on the stream, outside of a submission. Opens the memory of gpupool
 * on other devices to the stream's device, unless it is memory of cuMemAlloc, which the driver would have copied.
 * Returns false if no such memory is open to the device, so that the copy would be refused again.
 */
bool gp_peer_open_to_copies(CUstream stream);

/*
 * As gp_peer_open_to_copies, for a node of a graph that copies or sets memory in the context. NULL: the context is not
 * known, and the memory is opened to all devices in use.
 */
bool gp_peer_open_to_node(CUcontext ctx);

/* True if the node copies or sets memory. */
static inline bool gp_node_is_copy(const CUgraphNodeParams *node)
{
	return node && (node->type == CU_GRAPH_NODE_TYPE_MEMCPY || node->type == CU_GRAPH_NODE_TYPE_MEMSET);
}

/* Returns the context of such a node. */
static inline CUcontext gp_node_context(const CUgraphNodeParams *node)
{
	return node->type == CU_GRAPH_NODE_TYPE_MEMCPY ? node->memcpy.copyCtx : node->memset.ctx;
}
