/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Frees in stream order on a stream of another context than the block's, or of a block whose context has ended
 * (survivor.h). The fences of the block's context cover no work of that stream, and no work of the context may be made
 * to wait for it. So the block belongs neither to the program nor to the pool until the stream has done the work before
 * the free.
 */

#include <stdatomic.h>

#include "pool/base.h"
#include "shim/context/stream.h"

/*
 * Frees the block at the address, which belongs to a pool or is a survivor, on that stream. Returns 0, a code of
 * gp_pool_free, or the driver's error: then the program still holds the block.
 */
int gp_foreign_free(CUdeviceptr ptr, CUstream handle, const struct gp_stream *stream);

/*
 * Frees a survivor in no stream's order: its memory goes back once all work has ended that was submitted before. A free
 * of the driver's pools waits for no work either. Returns 0; GP_E_FOREIGN if the address is not that of a survivor; or
 * CUDA_ERROR_OUT_OF_MEMORY (of the host): then the program still holds it.
 */
int gp_foreign_free_survivor(CUdeviceptr ptr);

/*
 * To be called when an allocation has found no memory on a device: waits up to GP_UNFENCED_WAIT_NS until as much memory
 * has come back from such frees, or all of them have ended. Returns false if none has come back.
 */
enum { GP_FOREIGN_AWAITS_MAX = 16 }; /* the most in one allocation */
bool gp_foreign_await(int device, uint64_t bytes);

extern _Atomic unsigned gp_foreign_n_frees; /* frees whose work had not ended when that was last asked */

void gp_foreign_poll_slow(void);

/* Gives the blocks to their pools whose streams have done their work. */
static inline void gp_foreign_poll(void)
{
	if (gp_unlikely(atomic_load_explicit(&gp_foreign_n_frees, memory_order_relaxed) != 0))
		gp_foreign_poll_slow();
}
