/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* The part of stat_symbols.h that runs in the process that reads the files (stat_symbols_dw.c). */

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct symbol_files;

/* Opens nothing yet. NULL: there is not enough memory. */
struct symbol_files *symbol_files_new(const json_t *objects, pid_t pid);

/* stat_symbols_at(); opens the file of that object, if it was not asked for before. */
bool symbol_files_at(struct symbol_files *files, size_t object, uint64_t address, char *text, size_t size);

/* Whether a file was not read because there are too many, or they are too large. */
bool symbol_files_are_cut(const struct symbol_files *files);
