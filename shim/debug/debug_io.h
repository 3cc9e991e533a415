/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Reads and fills memory for GPUPOOL_DEBUG: device memory by copies on a private stream of its context, pinned memory
 * by the CPU. Nothing here waits for work of the program that has not begun: the stream waits for no other stream,
 * and the wait for a copy is bounded. While a stream captures, device memory is not touched.
 *
 * All functions return 0 or an error: -EBUSY (a capture, a context that is about to end, or an earlier copy that has
 * not finished), -ETIMEDOUT (this copy has not finished), or the driver's code. After an error the memory may still
 * be written later.
 */

#include "shim/context/context.h"

enum {
	GP_DEBUG_IO_BYTES = 1 << 20, /* bytes that are read at once, at most */
	GP_DEBUG_GUARD = 0xfb,       /* fill of the zones around blocks */
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

/* Fills each piece with GP_DEBUG_GUARD. Copies do this, since a running kernel cannot keep them from starting. */
int gp_debug_io_guard(struct gp_context *context, bool is_pinned, const struct gp_debug_piece *pieces, unsigned n);

/* Fills a piece of a block that no work uses with GP_DEBUG_POISON. */
int gp_debug_io_poison(struct gp_context *context, bool is_pinned, const struct gp_debug_piece *piece);

/* Frees the state that this module keeps in a context, before the context's structure is freed. */
void gp_debug_io_free(struct gp_context *context);
