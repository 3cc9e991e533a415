/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Function, source and line at an address of a file, out of the file itself and its debugging information. A process
 * has named the files, and the parsers are large: they run in a child that has become the user of that process, with
 * limits (stat_symbols_child.c). Without elfutils nothing is known (stat_symbols_plain.c).
 */

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "stat_name.h"

struct stat_symbols;

/*
 * For the "objects" of an answer, which may be anything and must outlive this. pid, uid: the process whose files they
 * are, as it sees them, and its user; for an answer out of a file 0 and one's own.
 */
struct stat_symbols *stat_symbols_new(const json_t *objects, pid_t pid, uid_t uid);
void stat_symbols_free(struct stat_symbols *symbols);

/*
 * "Grid::grow (grid.cpp:212)", the innermost first if several functions are at the address because one was put into
 * the other: they are separated by STAT_FRAMES_BETWEEN. False if nothing is known. Not clean. Where the text would be
 * longer than the size, names are cut and inner frames left out, but no name loses its file and line.
 */
bool stat_symbols_at(struct stat_symbols *symbols, size_t object, uint64_t address, char *text, size_t size);

/* Why some names that were asked for may be missing; NULL: none. */
const char *stat_symbols_problem(const struct stat_symbols *symbols);
