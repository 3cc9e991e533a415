/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Sharing blocks with other processes, of which the driver has no handle of its own. gpupool makes a handle of its own
 * format. A process under gpupool that opens the handle asks the exporter's control socket:
 *
 *   - A block that is a part of a segment: the driver can only export the whole segment, and an importer would get its
 *     base, which is another block. So the importer asks for the driver's handle of the segment and the block's offset.
 *   - A block of the kind vmm: the driver has no legacy handles for mapped memory. So the importer asks for the
 *     descriptors of the block's chunks, and maps them (ipc_mapped.h).
 *
 * A process without gpupool gets the driver's error for an invalid handle.
 */

#include "pool/pool.h"
#include "shim/context/context.h"
#include "shim/ctl/ctl_request.h"
#include "shim/driver/cuda_abi.h"

/*
 * Makes a handle for a block that is a part of a segment. Returns the driver's error, or CUDA_ERROR_NOT_SUPPORTED if
 * importers could not ask this process.
 */
CUresult gp_ipc_export(CUipcMemHandle *ret_handle, const struct gp_block_info *info);

/*
 * Makes a handle for a block of the kind vmm. Returns CUDA_ERROR_NOT_SUPPORTED if importers could not ask this process.
 * gp_ipc_why_not_mapped returns why no handle could be made for an address, or NULL. *ret_error becomes the error with
 * which the driver refuses to export the memory, or 0. The first call takes the driver up to 1 ms (mapping_setup.h).
 */
CUresult gp_ipc_export_mapped(CUipcMemHandle *ret_handle, const struct gp_block_info *info);
const char *gp_ipc_why_not_mapped(CUdeviceptr ptr, CUresult *ret_error);

/* Returns true if gp_ipc_export or gp_ipc_export_mapped made the handle, in any process. */
bool gp_ipc_is_ours(const CUipcMemHandle *handle);

/* Returns true if this process has the handle open. */
bool gp_ipc_is_open(const CUipcMemHandle *handle);

/* Opens a handle of gpupool. driver: the driver's function that opens the segment's handle. */
typedef CUresult (*gp_ipc_open_fn)(CUdeviceptr *ptr, CUipcMemHandle handle, unsigned flags);
CUresult gp_ipc_open(CUdeviceptr *ret_ptr, const CUipcMemHandle *handle, unsigned flags, gp_ipc_open_fn driver);

/*
 * Closes a mapped block. As the driver, waits for the context's work if this is the last close. Returns false for any
 * other pointer.
 */
bool gp_ipc_close_mapped(CUdeviceptr ptr, CUresult *ret_result);

/*
 * Returns the address to close in the driver for a pointer from gp_ipc_open; any other pointer is returned as it is.
 */
CUdeviceptr gp_ipc_close_base(CUdeviceptr ptr);

/* To be called after the driver has closed the segment of a pointer. Any other pointer is ignored. */
void gp_ipc_closed(CUdeviceptr ptr);

/* Finds the opened block around an address. Its serial number is made up by this process. False if there is none. */
bool gp_ipc_find(CUdeviceptr ptr, struct gp_block_info *ret_info);

/*
 * Calls fn for the addresses of all mapped blocks that were opened in the context, without a lock. Returns false if
 * host memory is short.
 */
bool gp_ipc_each_mapping(
	const struct gp_context *context, void (*fn)(void *arg, uint64_t addr, uint64_t bytes), void *arg);

/* Returns the context in which the opened block around an address was opened, or NULL. */
CUcontext gp_ipc_context_of(CUdeviceptr ptr);

/* Watches the ends of contexts: the driver closes every block that was opened in a context when the context ends. */
void gp_ipc_start(void);

/* Answer "ipc NONCE SERIAL", and "chunk NONCE ADDRESS SERIAL AT". */
int gp_ipc_answer(int argc, char **argv, struct gp_json *out);
int gp_ipc_answer_chunk(int argc, char **argv, struct gp_json *out);
