/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* The file of a recording. Callers must ensure that only one thread calls these functions at a time. */

#include <stddef.h>

/* Creates a new file; an existing file is never written to. Returns 0, or -errno (-EEXIST: the file exists). */
int gp_record_file_create(const char *path_template);

/* Appends to the file. Returns 0, or -errno (-ESTALE: another file has taken its name). */
int gp_record_file_append(const void *data, size_t length);

/* Returns the absolute path of the file. If it could not be determined, returns the template or "". */
const char *gp_record_file_name(void);
