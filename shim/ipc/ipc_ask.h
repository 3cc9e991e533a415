/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* Asks the process that exported a block where the block is, or for the memory of the block. */

#include <stdint.h>
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

/* One chunk of the memory of a block of the kind vmm. */
struct gp_ipc_chunk {
	uint64_t at, bytes;           /* of this chunk in the span: all chunks in which the block lies, in a row */
	uint64_t span_bytes;          /* this and the next two are the same for all chunks of a block */
	uint64_t offset, block_bytes; /* of the block in the span */
	int fd;                       /* the driver's descriptor of the chunk */
};

/*
 * Asks the exporting process for all chunks of a block, in order. words: the nonce, and the block's address and serial
 * number. Calls fn for each chunk, and closes the descriptor after that; stops if fn returns an error. Returns 0, the
 * error of fn, or an error as gp_ipc_ask; also -EMFILE if this process has no descriptor left, and -EIO if the exporter
 * cannot export.
 */
int gp_ipc_ask_chunks(pid_t pid, uint64_t start_ticks, const uint64_t words[static 3],
	int (*fn)(void *arg, const struct gp_ipc_chunk *chunk), void *arg);

/* Parses an answer: all members but `at` and `fd`. Returns 0, -ENOENT, -EIO, -EPERM or -EPROTO. */
int gp_ipc_parse_chunk(const char *line, struct gp_ipc_chunk *ret_chunk);
