/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Checks the output of a command byte by byte: it must be valid UTF-8 without control characters, and bounded. While
 * the command runs, the screens replace stdout and stderr.
 */

#include <stdbool.h>
#include <stddef.h>

/* keeps: captures the output to stdout for screens_check_json(). */
void screens_begin(bool keeps);

/* most: the maximum number of bytes printed to each screen. */
void screens_end(size_t most);

/* The captured output and its length, valid until the next begin. */
const char *screens_kept(size_t *ret_length);

/* Checks that the captured output is empty, or one JSON object on one line. */
void screens_check_json(void);
