/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* gpupool-stat convert: what a program did, or holds, in formats that others read. */

#include <stdio.h>

#include "stat_command.h"
#include "stat_source.h"

enum stat_exit convert_command(const struct stat_command *command, const struct stat_options *options);

/*
 * The formats. Each writes all of it, and lets the file keep its errors. STAT_OK, or the exit code after a message.
 * n_max: at most so many events; UINT64_MAX: as many as the format's readers like.
 */
enum stat_exit convert_torch(FILE *out, const struct stat_source *source, uint64_t n_max);
enum stat_exit convert_chrome(FILE *out, const struct stat_source *source, uint64_t n_max);
enum stat_exit convert_rmm(FILE *out, const struct stat_source *source, uint64_t n_max);
enum stat_exit convert_folded(FILE *out, const struct stat_source *source, uint64_t n_max);
enum stat_exit convert_pprof(FILE *out, const struct stat_source *source, uint64_t n_max);

/* convert_torch() of a process. */
enum stat_exit convert_torch_process(FILE *out, const struct stat_source *source);

/*
 * Opens what -o names, or stdout. NULL after a message: it cannot be, it is what is read, or it is a terminal and
 * is_binary.
 */
FILE *convert_open(const struct stat_source *source, const char *path, bool is_binary);

/*
 * STAT_OK if all is written, which is told with the size unless it is to stdout. Else the file stays as it was, and a
 * new file is removed.
 */
enum stat_exit convert_close(FILE *out, const char *path, enum stat_exit result);
