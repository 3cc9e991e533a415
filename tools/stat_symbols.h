/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * What is at an address of a file: function, source and line, out of the file itself and its debugging information. Two
 * versions of this: with elfutils (stat_symbols_dw.c), and without anything (stat_symbols_plain.c).
 */

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "stat_name.h"

struct stat_symbols;

/* For the "objects" of an answer, which may be anything. pid: whose files they are, as it sees them; 0: one's own. */
struct stat_symbols *stat_symbols_new(const json_t *objects, pid_t pid);
void stat_symbols_free(struct stat_symbols *symbols);

/*
 * "Grid::grow (grid.cpp:212)", the innermost first if several functions are at the address because one was put into
 * the other: they are separated by STAT_FRAMES_BETWEEN. False if nothing is known. Not clean. Where the text would be
 * longer than the size, names are cut and inner frames left out, but no name loses its file and line.
 */
bool stat_symbols_at(struct stat_symbols *symbols, size_t object, uint64_t address, char *text, size_t size);
