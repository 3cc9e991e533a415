/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * What the fuzz targets share. A target is one function that takes any bytes, does with them what
 * the program does, and ends the process if a promise is broken. libFuzzer drives it where clang
 * is, replay.c everywhere.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The target. Returns 0; may be called any number of times, in one thread. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Says what is wrong and ends the process, as a sanitiser does. */
void fuzz_fail(const char *file, int line, const char *format, ...)
	__attribute__((format(printf, 3, 4), noreturn));

#define FUZZ_CHECK(cond, ...)                                                                      \
	do {                                                                                       \
		if (!(cond))                                                                       \
			fuzz_fail(__FILE__, __LINE__, __VA_ARGS__);                                \
	} while (0)

/* What is left of the input. Behind its end there are zeros. */
struct fuzz_input {
	const uint8_t *at, *end;
};

bool fuzz_is_over(const struct fuzz_input *in);
uint8_t fuzz_byte(struct fuzz_input *in);
unsigned fuzz_u16(struct fuzz_input *in);

/*
 * Text targets mix what is said with what is done: 0xfe (in no valid text) announces the number of
 * an operation. True and the number; or false and a byte to be taken as it is, which 0xfe 0 makes
 * of 0xfe.
 */
bool fuzz_op(struct fuzz_input *in, uint8_t *ret_byte);

/* An end of the process that is no failure of a target (no memory, no sockets). */
void fuzz_require(bool cond, const char *what);
