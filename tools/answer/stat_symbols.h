/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Finds the function, source file and line of an address in a file, by its symbols and debugging information. A process
 * that may be hostile has named the files, and the parsers are large: they run in a child that has become the user of
 * that process, with limits (stat_symbols_child.c). Without elfutils no names are found (stat_symbols_plain.c).
 */

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "tools/text/stat_name.h"

struct stat_symbols;

/*
 * Makes the symbols for the "objects" of an answer, which may be hostile, and must outlive the symbols. pid, uid: the
 * process whose files they are, as it sees them, and its user; for an answer in a file 0 and the caller's user.
 */
struct stat_symbols *stat_symbols_new(const json_t *objects, pid_t pid, uid_t uid);
void stat_symbols_free(struct stat_symbols *symbols);

/*
 * Writes "Grid::grow (grid.cpp:212)". If functions are inlined at the address, writes all of them, the innermost first,
 * separated by STAT_FRAMES_BETWEEN. Returns false if nothing is known. The text is not clean. If it would be longer
 * than size, names are cut and inner frames left out, but no name loses its file and line.
 */
bool stat_symbols_at(struct stat_symbols *symbols, size_t object, uint64_t address, char *text, size_t size);

/* Returns why names may be missing, or NULL. */
const char *stat_symbols_problem(const struct stat_symbols *symbols);
