/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* Peer access that the program has in another way than by cuCtxEnablePeerAccess. */

#include <stdbool.h>

#include "shim/driver/cuda_abi.h"

/*
 * Opens the memory that gpupool has served in place of the driver's pools to work in the device's primary context, if
 * the program has given the device access to these pools. Does nothing while that context is not active, so it is to be
 * called when the program has given access, and again when it has retained the context.
 */
void gp_peer_open_pools(CUdevice device);

/*
 * To be called when the driver has refused a copy in the context, or on the stream if that is NULL, outside of a
 * submission. Opens the memory of gpupool on other devices to the device that makes the copy, unless it is memory of
 * cuMemAlloc, which the driver would have copied. Returns false if no such memory is open to the device, so that the
 * copy would be refused again.
 */
bool gp_peer_open_to_copies(CUcontext ctx, CUstream stream);

/* Returns the context of a node that copies or sets memory; NULL: the node is of another type. */
static inline CUcontext gp_node_context(const CUgraphNodeParams *node)
{
	if (node && node->type == CU_GRAPH_NODE_TYPE_MEMCPY)
		return node->memcpy.copyCtx;
	return node && node->type == CU_GRAPH_NODE_TYPE_MEMSET ? node->memset.ctx : NULL;
}
