/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* Asks the process that exported a block where the block is. */

#include <sys/types.h>

#include "shim/driver/cuda_abi.h"

/* The exporter's reply: where a block is. */
struct gp_ipc_reply {
	CUipcMemHandle segment; /* the driver's handle */
	uint64_t offset, bytes; /* of the block in the segment */
};

/*
 * Asks the exporting process. Returns 0; -ENOENT if the process has ended or the block is freed; -EPERM if the process
 * belongs to another user; -ETIMEDOUT; -EPROTO for an invalid answer; or another -errno.
 */
int gp_ipc_ask(pid_t pid, uint64_t start_ticks, uint64_t nonce, uint64_t serial, struct gp_ipc_reply *ret_reply);

/* Parses an answer. Returns 0, -ENOENT or -EPROTO. */
int gp_ipc_parse(const char *line, struct gp_ipc_reply *ret_reply);
