/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Reads and fills memory for GPUPOOL_DEBUG: device memory by copies on a private stream of its context, pinned memory
 * by the CPU. The stream waits for no other stream. The driver may still queue a copy behind work of the program, so
 * the wait for a copy is bounded. While a stream captures, device memory is not touched.
 *
 * All functions return 0 or an error: -EBUSY (a capture, a context that is about to end, or an earlier copy that has
 * not finished), -ETIMEDOUT (this copy has not finished), or the driver's code. After an error the memory may still
 * be written later.
 */

#include "shim/context/context.h"

enum {
	GP_DEBUG_IO_BYTES = 1 << 20, /* one call reads at most this many bytes */
	GP_DEBUG_GUARD = 0xfb,       /* fill of the guards: the bytes around a block */
};

/*
 * Fill of freed blocks: a NaN in the floating-point formats of 16, 32 and 64 bits, and not an address. Its four bytes
 * divide the size of every block, which is a multiple of 512.
 */
#define GP_DEBUG_POISON UINT32_C(0x7ff77ff7)

struct gp_debug_piece {
	uint64_t addr, bytes;
};

/* Calls fn with the contents of each piece, in order. The pieces together have at most GP_DEBUG_IO_BYTES. */
int gp_debug_io_read(struct gp_context *context, bool is_pinned, const struct gp_debug_piece *pieces, unsigned n,
	void (*fn)(void *arg, const struct gp_debug_piece *piece, const unsigned char *seen), void *arg);

/* Fills each piece with GP_DEBUG_GUARD, by copies: unlike a memset, a copy can start while any kernel runs. */
int gp_debug_io_guard(struct gp_context *context, bool is_pinned, const struct gp_debug_piece *pieces, unsigned n);

/* Fills a piece with GP_DEBUG_POISON. No GPU work may still use the block. */
int gp_debug_io_poison(struct gp_context *context, bool is_pinned, const struct gp_debug_piece *piece);

/* Frees the state that this module keeps in a context, before the context's structure is freed. */
void gp_debug_io_free(struct gp_context *context);
