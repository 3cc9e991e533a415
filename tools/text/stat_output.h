/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* Writes a file completely or not at all: an existing file stays until the new one is complete. */

#include <stdbool.h>
#include <stdio.h>

/* Opens a file for writing, at most one at a time. Returns NULL with errno set. */
FILE *stat_output_open(const char *path);

/* Closes the file. If is_good it replaces path, otherwise it is removed. Returns 0, or -errno if writing failed. */
int stat_output_close(FILE *out, bool is_good);

/* Flushes any stream. Returns 0, or -errno if printed text could not be written. */
int stat_output_flush(FILE *out);
