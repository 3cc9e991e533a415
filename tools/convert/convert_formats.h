/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* The formats of convert, one function each, in sources of their own. convert.c has the table of them. */

#include <stdio.h>

#include "stat_source.h"

/*
 * Each function writes the whole output and leaves write errors in the state of the file, for
 * convert_close(). It returns STAT_OK, or the exit code after a message.
 * n_max: the most events to write; UINT64_MAX: as many as readers of the format handle well.
 */
enum stat_exit convert_torch(FILE *out, const struct stat_source *source, uint64_t n_max);
enum stat_exit convert_chrome(FILE *out, const struct stat_source *source, uint64_t n_max);
enum stat_exit convert_rmm(FILE *out, const struct stat_source *source, uint64_t n_max);
enum stat_exit convert_folded(FILE *out, const struct stat_source *source, uint64_t n_max);
enum stat_exit convert_pprof(FILE *out, const struct stat_source *source, uint64_t n_max);

/* Writes the same for a process; convert_torch() calls it. */
enum stat_exit convert_torch_process(FILE *out, const struct stat_source *source);
