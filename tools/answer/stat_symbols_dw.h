/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* The part of stat_symbols.h that runs in the process that reads the files (stat_symbols_dw.c). */

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct symbol_files;

/* Makes the list of files, without opening any. Returns NULL if there is not enough memory. */
struct symbol_files *symbol_files_new(const json_t *objects, pid_t pid);

/* Does what stat_symbols_at() describes. Opens the file of the object when it is first needed. */
bool symbol_files_at(struct symbol_files *files, size_t object, uint64_t address, char *text, size_t size);

/* Returns true if a file was not read because there are too many files, or they are too large. */
bool symbol_files_are_cut(const struct symbol_files *files);
