/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* A file that is written as a whole or not at all: what was there before stays until the new one is complete. */

#include <stdbool.h>
#include <stdio.h>

/* At most one file is open at a time. NULL: errno says why. */
FILE *stat_output_open(const char *path);

/* Closes it. is_good: it takes the place of path; else it is removed. 0, or -errno if it could not be written. */
int stat_output_close(FILE *out, bool is_good);

/* Flushes any stream: 0, or -errno if printed text could not be written. */
int stat_output_flush(FILE *out);
