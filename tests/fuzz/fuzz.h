/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Functions that the fuzz targets share. A target is one function that takes any bytes, processes
 * them as the program does, and aborts if an invariant is violated. With clang, libFuzzer calls the
 * target; with any compiler, replay.c does.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The target. Returns 0; may be called any number of times, in one thread. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Prints a message about the violation and aborts, as a sanitiser does. */
void fuzz_fail(const char *file, int line, const char *format, ...) __attribute__((format(printf, 3, 4), noreturn));

#define FUZZ_CHECK(cond, ...)                                       \
	do {                                                        \
		if (!(cond))                                        \
			fuzz_fail(__FILE__, __LINE__, __VA_ARGS__); \
	} while (0)

/* The unread part of the input. Reads after its end return zeros. */
struct fuzz_input {
	const uint8_t *at, *end;
};

bool fuzz_is_over(const struct fuzz_input *in);
uint8_t fuzz_byte(struct fuzz_input *in);
unsigned fuzz_u16(struct fuzz_input *in);

/*
 * Targets that read text mix it with operations: the byte 0xfe, which no valid text contains, is
 * followed by the number of an operation. Returns true and the number, or false and a byte of text.
 * 0xfe 0 stands for the byte 0xfe in the text.
 */
bool fuzz_op(struct fuzz_input *in, uint8_t *ret_byte);

/* Ends the process if the machine lacks something (memory, sockets), which is not a failure of the target. */
void fuzz_require(bool cond, const char *what);
