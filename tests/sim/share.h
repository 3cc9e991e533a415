/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Memory that other processes can map. A device has one file behind all its memory; what is shared
 * moves to a file of its own, at the same address, so that it outlives its owner for as long as
 * somebody has it mapped. Behind the memory the file has a table of what in it may be opened, from
 * which a block is struck when it is freed. A process that has a handle opens the file as
 * /proc/PID/fd/FD.
 */

#include "memory.h"

/* A handle, as it stands in CUipcMemHandle and CUipcEventHandle; zeros follow. */
struct sim_handle {
	uint64_t magic; /* of memory, or of an event */
	uint32_t pid;
	int32_t fd;
	uint64_t nonce; /* of the file */
	uint64_t offset, bytes, id;
};

struct sim_share;

/* The handle of a block, which moves to a file of its own if it is not in one. */
CUresult sim_share_block(struct sim_block *block, struct sim_handle *handle);
void sim_share_forget(const struct sim_block *block);
bool sim_share_is_at(uint64_t addr);
bool sim_share_end(struct sim_device *device, uint64_t addr); /* false: it was in none */

/* A file for something without memory. */
CUresult sim_share_nothing(uint64_t id, struct sim_share **share);
void sim_share_handle(const struct sim_share *share, struct sim_handle *handle);
void sim_share_free(struct sim_share *share); /* NULL is allowed */

/* Opens the file that a handle names, if that is still a valid name. The caller closes fd. */
struct sim_opened {
	int fd;
	size_t bytes; /* of memory in the file */
	unsigned device;
};
CUresult sim_share_open(const struct sim_handle *handle, struct sim_opened *opened);

/* import.c */
/* once: what is open already is refused. */
CUresult sim_import_begin(const struct sim_handle *handle, struct sim_ctx *ctx, bool once,
	struct sim_block **block);
CUresult sim_import_close(struct sim_block *block);
void sim_import_end(struct sim_block *block); /* its last part, also for what dies unclosed */
