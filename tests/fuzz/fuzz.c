/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "fuzz.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { OP = 0xfe };

/* Writes to the descriptor, because a target may have replaced the stream stderr. */
void fuzz_fail(const char *file, int line, const char *format, ...)
{
	va_list args;

	dprintf(STDERR_FILENO, "%s:%d: ", file, line);
	va_start(args, format);
	vdprintf(STDERR_FILENO, format, args);
	va_end(args);
	dprintf(STDERR_FILENO, "\n");
	abort();
}

void fuzz_require(bool cond, const char *what)
{
	if (cond)
		return;
	dprintf(STDERR_FILENO, "fuzz: cannot continue on this machine: %s\n", what);
	_exit(EXIT_FAILURE);
}

bool fuzz_is_over(const struct fuzz_input *in)
{
	return in->at == in->end;
}

uint8_t fuzz_byte(struct fuzz_input *in)
{
	return fuzz_is_over(in) ? 0 : *in->at++;
}

unsigned fuzz_u16(struct fuzz_input *in)
{
	unsigned high = fuzz_byte(in);

	return high << 8 | fuzz_byte(in);
}

bool fuzz_op(struct fuzz_input *in, uint8_t *ret_byte)
{
	*ret_byte = fuzz_byte(in);
	if (*ret_byte != OP)
		return false;
	*ret_byte = fuzz_byte(in);
	if (*ret_byte)
		return true;
	*ret_byte = OP;
	return false;
}
