/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* The file of a recording. Callers must ensure that only one thread is in here at a time. */

#include <stddef.h>

/* Creates a new file; an existing one is never written to. 0 or -errno. */
int gp_record_file_create(const char *path_template);

/* Appends to the file. 0 or -errno; -ESTALE: another file has taken its name. */
int gp_record_file_append(const void *data, size_t length);

/* Returns the absolute path, or the path as given if that could not be determined. */
const char *gp_record_file_name(void);
