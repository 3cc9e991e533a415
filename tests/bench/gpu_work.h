/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * What players do with the GPU besides allocating: streams, contexts, kernels and copies, through the driver's
 * functions, so that every peer's memory is used in the same way. All return a CUresult, and
 * CUDA_ERROR_NOT_FOUND where the driver has no such function.
 */

#include "bench.h"

/* Sees to it that there are so many streams, on each of which something has been done. */
int gpu_work_streams(unsigned n);

/* Created ones; NULL, the default stream, if there are none. */
void *gpu_work_stream(unsigned n);

/* Makes contexts up to so many, with a block in each, and leaves the current one current. */
int gpu_work_contexts(unsigned n);

/* Loads the kernels, and gets the buffers for copies of so many bytes. */
int gpu_work_prepare(size_t copy_bytes);

/* A kernel on one multiprocessor that spins, then writes to the block. */
int gpu_work_kernel(void *ptr, unsigned us, void *stream);

/* The cheapest submission: a host function that does nothing. */
int gpu_work_submit(void *stream);

/* Between the nth stream's pinned buffers and the block. */
int gpu_work_copy_in(void *ptr, size_t bytes, unsigned n);
int gpu_work_copy_out(void *ptr, size_t bytes, unsigned n);

int gpu_work_synchronize(void);
