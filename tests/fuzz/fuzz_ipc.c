/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * The library asks the process that exported a block for the block's segment and offset, and that
 * process is hostile. The input is its answer, mixed with operations that split the answer into
 * writes or close the connection (enum op).
 */

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "fuzz.h"
#include "shim/ipc/ipc_ask.h"
#include "sockets.h"

enum op { OP_LITERAL, OP_CUT, OP_HANG_UP, N_OPS };

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
	}
}

/* Each reply has exactly one valid text: the parsed reply must format to the line. */
static void check_reply(const struct gp_ipc_reply *reply, const char *line, size_t length)
{
	const unsigned char *bytes = (const unsigned char *)&reply->segment;
	char text[512];
	size_t n = (size_t)snprintf(text, sizeof(text), "{\"schema\":\"gpupool.ipc/1\",\"handle\":\"");

	for (size_t i = 0; i < sizeof(reply->segment); i++)
		n += (size_t)snprintf(text + n, sizeof(text) - n, "%02x", bytes[i]);
	n += (size_t)snprintf(text + n, sizeof(text) - n, "\",\"offset\":%" PRIu64 ",\"bytes\":%" PRIu64 "}",
		reply->offset, reply->bytes);
	FUZZ_CHECK(n == length && !memcmp(text, line, n), "'%.*s' is parsed as '%s'", (int)length, line, text);
	FUZZ_CHECK(reply->bytes && reply->offset + reply->bytes > reply->offset,
		"the offset and size of a reply overflow, or the size is 0");
}

static bool is_known(int error)
{
	return error == 0 || error == -ENOENT || error == -EPROTO || error == -ETIMEDOUT || error == -EPIPE ||
	       error == -ECONNRESET;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_input in = {data, data + size};
	struct gp_ipc_reply reply;
	const char *line;
	size_t length;
	int error;

	sockets_open(1);
	write_script(&in);
	error = gp_ipc_ask(getpid(), sockets_start_ticks(0), 1, 2, &reply);
	FUZZ_CHECK(is_known(error), "gp_ipc_ask returns %d", error);
	line = sockets_line(&length);
	if (error == 0 && line)
		check_reply(&reply, line, length);
	sockets_close();
	return 0;
}
