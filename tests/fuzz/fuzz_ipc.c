/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * The library asks the process that exported a block for its place, and that process is hostile. The
 * input is what it answers, and when it cuts that up, hangs up or falls silent (enum op).
 */

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "fuzz.h"
#include "shim/ipc.h"
#include "sockets.h"

enum op {
	OP_LITERAL,
	OP_CUT,
	OP_HANG_UP,
	N_OPS
};

static void write_script(struct fuzz_input *in)
{
	uint8_t byte;

	while (!fuzz_is_over(in)) {
		if (!fuzz_op(in, &byte))
			(void)sockets_say(0, byte);
		else if (byte % N_OPS == OP_CUT)
			sockets_cut(0);
		else if (byte % N_OPS == OP_HANG_UP)
			sockets_hang_up(0);
	}
}

/* There is one way only to write a place. */
static void check_place(const struct gp_ipc_place *place, const char *line, size_t length)
{
	const unsigned char *bytes = (const unsigned char *)&place->segment;
	char text[512];
	size_t n = (size_t)snprintf(text, sizeof(text), "{\"schema\":\"gpupool.ipc/1\",\"handle\":\"");

	for (size_t i = 0; i < sizeof(place->segment); i++)
		n += (size_t)snprintf(text + n, sizeof(text) - n, "%02x", bytes[i]);
	n += (size_t)snprintf(text + n, sizeof(text) - n, "\",\"offset\":%" PRIu64 ",\"bytes\":%" PRIu64 "}",
		place->offset, place->bytes);
	FUZZ_CHECK(n == length && !memcmp(text, line, n), "'%.*s' is taken for '%s'", (int)length, line, text);
	FUZZ_CHECK(place->bytes && place->offset + place->bytes > place->offset, "a place that wraps");
}

static bool is_known(int error)
{
	return error == 0 || error == -ENOENT || error == -EPROTO || error == -ETIMEDOUT || error == -EPIPE ||
	       error == -ECONNRESET;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_input in = {data, data + size};
	struct gp_ipc_place place;
	const char *line;
	size_t length;
	int error;

	sockets_open(1);
	write_script(&in);
	error = gp_ipc_ask(getpid(), sockets_start_ticks(0), 1, 2, &place);
	FUZZ_CHECK(is_known(error), "error %d", error);
	line = sockets_line(&length);
	if (error == 0 && line)
		check_place(&place, line, length);
	sockets_close();
	return 0;
}
