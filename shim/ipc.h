/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Blocks that are parts of a segment, between processes. The driver can only export the segment, and an importer would
 * get its base, another block's data. So such a block gets a handle of gpupool's own, and a process under gpupool
 * that opens it asks the exporter's socket for the segment's handle and the place in it. For everybody else the handle
 * is one that the driver never made.
 */

#include "../pool/pool.h"
#include "ctl_request.h"
#include "cuda_abi.h"

/* A handle for a block that is a part of a segment. The driver's error, or NOT_SUPPORTED if nobody could ask. */
CUresult gp_ipc_export(CUipcMemHandle *ret_handle, const struct gp_block_info *info);

/* Whether gp_ipc_export of some process made it. */
bool gp_ipc_is_ours(const CUipcMemHandle *handle);

/* Whether this process has it open. */
bool gp_ipc_is_open(const CUipcMemHandle *handle);

/* Opens such a handle, with the driver's function for the segment's. */
typedef CUresult (*gp_ipc_open_fn)(CUdeviceptr *ptr, CUipcMemHandle handle, unsigned flags);
CUresult gp_ipc_open(CUdeviceptr *ret_ptr, const CUipcMemHandle *handle, unsigned flags, gp_ipc_open_fn driver);

/* What must be closed in place of a pointer that gp_ipc_open gave: the pointer itself if it gave no such. */
CUdeviceptr gp_ipc_close_base(CUdeviceptr ptr);
void gp_ipc_closed(CUdeviceptr ptr);

/* The opened block around an address; false if there is none. Its serial is of this process. */
bool gp_ipc_find(CUdeviceptr ptr, struct gp_block_info *ret_info);

/* The context is gone, and what was opened in it. */
void gp_ipc_forget_context(CUcontext ctx);

/* What an importer asks for, and learns. */
struct gp_ipc_place {
	CUipcMemHandle segment; /* the driver's handle */
	uint64_t offset, bytes; /* of the block in the segment */
};

/* Answers "ipc NONCE SERIAL". */
int gp_ipc_answer(int argc, char **argv, struct gp_json *out);

/*
 * ipc_ask.c: asks the process for one of its blocks. 0; -ENOENT: the process, or the block, is gone; -EPERM: another
 * user's; -ETIMEDOUT; -EPROTO: an answer that is none; or another -errno.
 */
int gp_ipc_ask(pid_t pid, uint64_t start_ticks, uint64_t nonce, uint64_t serial, struct gp_ipc_place *ret_place);

/* Takes an answer apart; for tests as well. 0, -ENOENT or -EPROTO. */
int gp_ipc_parse(const char *line, struct gp_ipc_place *ret_place);
