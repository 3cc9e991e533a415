/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * The library asks the process that exported a block of the kind vmm for the block's chunks, and that process is
 * hostile. The input is its answers, mixed with operations that split them into writes, close the connection, or send
 * descriptors along (enum op).
 */

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "fuzz.h"
#include "shim/ipc/ipc_ask.h"
#include "sockets.h"

enum op { OP_LITERAL, OP_CUT, OP_HANG_UP, OP_FD, N_OPS };
enum { TAKES_MAX = 64, FN_ERROR = 77 };

static void write_script(struct fuzz_input *in)
{
	uint8_t byte;

	while (!fuzz_is_over(in)) {
		if (!fuzz_op(in, &byte))
			(void)sockets_add_byte(0, byte);
		else if (byte % N_OPS == OP_CUT)
			sockets_add_cut(0);
		else if (byte % N_OPS == OP_HANG_UP)
			sockets_add_hang_up(0);
		else if (byte % N_OPS == OP_FD)
			sockets_add_fds(0, 1 + byte / N_OPS % 3);
	}
}

static struct taken {
	struct gp_ipc_chunk first;
	uint64_t end; /* of the chunks so far */
	unsigned n;
} taken;

/* The chunks tile the span from its start, agree about the block, and each comes with an open descriptor. */
static int take(void *arg, const struct gp_ipc_chunk *chunk)
{
	(void)arg;
	if (!taken.n)
		taken.first = *chunk;
	FUZZ_CHECK(chunk->at == taken.end, "a chunk is at %" PRIu64 ", and the last ends at %" PRIu64, chunk->at,
		taken.end);
	FUZZ_CHECK(chunk->bytes && chunk->bytes <= chunk->span_bytes - chunk->at, "a chunk is not in the span");
	FUZZ_CHECK(chunk->span_bytes == taken.first.span_bytes && chunk->offset == taken.first.offset &&
			   chunk->block_bytes == taken.first.block_bytes,
		"the chunks are of several blocks");
	FUZZ_CHECK(chunk->block_bytes && chunk->offset + chunk->block_bytes > chunk->offset &&
			   chunk->offset + chunk->block_bytes <= chunk->span_bytes,
		"the block is not in the span");
	FUZZ_CHECK(fcntl(chunk->fd, F_GETFD) == FD_CLOEXEC, "a chunk comes without a private descriptor");
	taken.end += chunk->bytes;
	return ++taken.n == TAKES_MAX ? FN_ERROR : 0;
}

static bool is_known(int error)
{
	return error == 0 || error == -ENOENT || error == -EPROTO || error == -ETIMEDOUT || error == -EPIPE ||
	       error == -ECONNRESET || error == -EIO || error == -EPERM || (error == FN_ERROR && taken.n == TAKES_MAX);
}

/* Returns the lowest descriptor that is free. It rises if one is left open. */
static int lowest_free(void)
{
	int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

	fuzz_require(fd >= 0, "no descriptor");
	close(fd);
	return fd;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const uint64_t words[3] = {1, 2, 3};
	struct fuzz_input in = {data, data + size};
	int error, before;

	taken = (struct taken){.n = 0};
	sockets_open(1);
	before = lowest_free();
	write_script(&in);
	error = gp_ipc_ask_chunks(getpid(), sockets_start_ticks(0), words, take, NULL);
	FUZZ_CHECK(is_known(error), "gp_ipc_ask_chunks returns %d", error);
	FUZZ_CHECK(error || taken.end == taken.first.span_bytes, "the chunks do not fill the span");
	sockets_close();
	FUZZ_CHECK(lowest_free() == before, "descriptor %d stays open", before);
	return 0;
}
