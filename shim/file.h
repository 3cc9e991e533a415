/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* Files that gpupool writes in somebody else's process. */

#include <stdbool.h>
#include <stddef.h>

/* A name with %p for the process id and %% for a percent sign. False if it is empty or does not fit. */
bool gp_file_expand(char *path, size_t size, const char *path_template);

/*
 * Writes all of it. No signal comes of it, neither from a pipe without a reader nor from a file at its limit.
 * 0 or -errno; what was written until then stays.
 */
int gp_file_write(int fd, const void *data, size_t length);
