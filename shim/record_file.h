/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* The file of a recording. The caller sees to it that one thread is here at a time. */

#include <stddef.h>

/* Makes a new file; none that is there is written to. 0 or -errno. */
int gp_record_file_create(const char *path_template);

/* Appends. 0 or -errno; -ESTALE: another file has its name now. */
int gp_record_file_append(const void *data, size_t length);

/* The name in full, once it could be made out; else as given. */
const char *gp_record_file_name(void);
