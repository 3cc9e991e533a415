/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * The memory of blocks of the kind vmm in other processes. The exporter passes the driver's descriptor of each chunk
 * over its control socket. The importer maps the chunks in a row, at addresses of its own.
 */

#include "ipc_ask.h"
#include "shim/base/json.h"
#include "shim/context/context.h"

/* Returns 0 if the driver can export the chunks of the block at the address, or its error. */
CUresult gp_ipc_try_export(CUdeviceptr ptr);

/* Answers a request for a chunk of an exported block. To be called in the server's thread. */
int gp_ipc_answer_chunk_of(uint64_t addr, uint64_t serial, uint64_t at, struct gp_json *out);

/* The mapped chunks of a block. */
struct gp_ipc_mapping {
	CUdeviceptr base; /* 0: none */
	uint64_t bytes;
	uint64_t offset, block_bytes; /* of the block */
	uint64_t devices;             /* a bit for each device that has got access */
};

/*
 * Asks for the chunks of a block (gp_ipc_ask_chunks) and maps them, for the context's device and those with access to
 * the context's memory. Returns 0, a driver's error, or a -errno as gp_ipc_ask_chunks; without effect unless it is 0.
 */
int gp_ipc_map(struct gp_context *context, pid_t pid, uint64_t start_ticks, const uint64_t words[static 3],
	struct gp_ipc_mapping *ret_mapping);

/*
 * To be called once the mapping is known to gp_ipc_each_mapping: gives access to devices for which the program has
 * enabled it since gp_ipc_map.
 */
void gp_ipc_allow_new(struct gp_context *context, const struct gp_ipc_mapping *mapping);

/*
 * Works without a live context. The work that uses the memory must have ended. Returns the driver's error: then the
 * memory is still mapped.
 */
CUresult gp_ipc_unmap(const struct gp_ipc_mapping *mapping);

/* Waits for the work of the context so far, unless it has ended. Returns 0 or the driver's error. */
CUresult gp_ipc_wait_for(struct gp_context *context);
