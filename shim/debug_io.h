/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * How memory is looked at, and filled, for GPUPOOL_DEBUG: of a device by copies on a private stream of its context,
 * pinned memory by the CPU. Nothing here waits for work of the program's that has not begun: the stream is ordered
 * behind nothing, and who waits for a copy does so for a bounded time. While anything captures nothing is done.
 *
 * All of them: 0, or why not: -EBUSY (a capture, an end of the context under way, or a copy that has not come to an end
 * yet), -ETIMEDOUT (this one has not), or the driver's code. Then what was to be written may be written later.
 */

#include "context.h"

enum {
	GP_DEBUG_IO_BYTES = 1 << 20, /* the most that is looked at in one go */
	GP_DEBUG_GUARD = 0xfb,	     /* what zones around blocks are filled with */
};

/* What freed blocks are filled with: no number in any format of floating point, and no address. Four bytes, of 512. */
#define GP_DEBUG_POISON UINT32_C(0x7ff77ff7)

struct gp_debug_piece {
	uint64_t addr, bytes;
};

/* Calls back with what each piece holds, in their order. Together they are no more than GP_DEBUG_IO_BYTES. */
int gp_debug_io_read(struct gp_context *context, bool is_pinned, const struct gp_debug_piece *pieces, unsigned n,
	void (*fn)(void *arg, const struct gp_debug_piece *piece, const unsigned char *seen), void *arg);

/* Fills each piece with GP_DEBUG_GUARD. By copies, which need nothing of the GPU that a kernel could keep busy. */
int gp_debug_io_guard(
	struct gp_context *context, bool is_pinned, const struct gp_debug_piece *pieces, unsigned n);

/* Fills the piece, of a block that nobody uses, with GP_DEBUG_POISON. */
int gp_debug_io_poison(struct gp_context *context, bool is_pinned, const struct gp_debug_piece *piece);

/* The context is forgotten. */
struct gp_debug_io;
void gp_debug_io_free(struct gp_debug_io *io);
