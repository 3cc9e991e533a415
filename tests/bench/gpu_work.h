/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * The GPU work of players: streams, contexts, kernels and copies. All peers use the same driver functions for it. Each
 * function returns a CUresult, and CUDA_ERROR_NOT_FOUND if the driver lacks the function.
 */

#include "bench.h"

/* Creates streams until there are n, and submits something to each new stream. */
int gpu_work_streams(unsigned n);

/* Returns a created stream, in turn by n; or NULL, the default stream, if there are none. */
void *gpu_work_stream(unsigned n);

/* Creates contexts until there are n, with a block in each; the current context stays current. */
int gpu_work_contexts(unsigned n);

/* Loads the kernels, and allocates buffers for copies of copy_bytes. */
int gpu_work_prepare(size_t copy_bytes);

/* Launches a kernel that spins on one multiprocessor, then writes to the block. */
int gpu_work_kernel(void *ptr, unsigned us, void *stream);

/* Submits a host function that does nothing, which is the cheapest submission. */
int gpu_work_submit(void *stream);

/* Copies between the pinned buffers of the nth stream and the block. */
int gpu_work_copy_in(void *ptr, size_t bytes, unsigned n);
int gpu_work_copy_out(void *ptr, size_t bytes, unsigned n);

int gpu_work_synchronize(void);
