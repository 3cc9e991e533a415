/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * What a command prints, looked at byte by byte: it is valid UTF-8, without anything that steers a terminal, and
 * bounded. While a command runs, the screens are in the place of stdout and stderr.
 */

#include <stdbool.h>
#include <stddef.h>

/* keeps: what is printed to stdout is kept, for screens_check_json(). */
void screens_begin(bool keeps);

/* most: bytes that may have been printed to each. */
void screens_end(size_t most);

/* What was kept, and its length: until the next begin. */
const char *screens_kept(size_t *ret_length);

/* What was kept is nothing, or one object on one line. */
void screens_check_json(void);
