/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Memory that other processes can map. A device has one file for all of its memory. Shared memory
 * moves to a separate file, at the same address, so that it outlives its owner while another process
 * has it mapped. After the memory, the file has a table of the blocks that may be opened. A free
 * removes the block from the table. A process that has a handle opens the file as /proc/PID/fd/FD.
 */

#include "memory.h"

/* The contents of CUipcMemHandle and CUipcEventHandle. The remaining bytes are zero. */
struct sim_handle {
	uint64_t magic; /* tells memory from events */
	uint32_t pid;
	int32_t fd;
	uint64_t nonce; /* of the file */
	uint64_t offset, bytes, id;
};

struct sim_share;

/* Returns the handle of a block. If the block is not in a separate file yet, its chunks move to one. */
CUresult sim_share_block(struct sim_block *block, struct sim_handle *handle);
void sim_share_forget(const struct sim_block *block);
bool sim_share_is_at(uint64_t addr);
bool sim_share_end(struct sim_device *device, uint64_t addr); /* false if it was in no file */

/* Creates a file without memory, for an event. */
CUresult sim_share_nothing(uint64_t id, struct sim_share **share);
void sim_share_handle(const struct sim_share *share, struct sim_handle *handle);
void sim_share_free(struct sim_share *share); /* NULL is allowed */

/*
 * Copies memory of a device to the beginning of a file: only the parts that have data, so that the rest takes no memory
 * in the new file either.
 */
bool sim_share_copy(const struct sim_device *device, uint64_t offset, size_t bytes, int fd);

/* Opens the file that a handle names, if the handle is still valid. The caller closes fd. */
struct sim_opened {
	int fd;
	size_t bytes; /* of memory in the file */
	unsigned device;
};
CUresult sim_share_open(const struct sim_handle *handle, struct sim_opened *opened);

/* import.c: with `once`, memory that is open already is refused. */
CUresult sim_import_begin(const struct sim_handle *handle, struct sim_ctx *ctx, bool once, struct sim_block **block);
CUresult sim_import_close(struct sim_block *block);
void sim_import_end(struct sim_block *block); /* unmaps it; also for memory that was never closed */
