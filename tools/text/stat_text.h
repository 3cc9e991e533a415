/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* Numbers as people read them, and tables of them. */

#include <stddef.h>
#include <stdint.h>

enum { STAT_TEXT_MAX = 32, STAT_COLUMN_MAX = 40 };

/* Writes three significant digits and an IEC unit: "0 B", "1.65 GiB", "17.0 MiB", "1023 KiB". */
void stat_bytes(char text[static STAT_TEXT_MAX], uint64_t bytes);

/* Writes bytes as CUDA.jl does: "0 bytes", "8.000 KiB", "15.744 GiB". */
void stat_bytes_julia(char text[static STAT_TEXT_MAX], uint64_t bytes);

/* Writes a duration: "850 ns", "3.21 ms", "12.0 s". */
void stat_duration(char text[static STAT_TEXT_MAX], uint64_t ns);

/* Writes an age: "12s", "5m03s", "3h12m", "4d07h". */
void stat_age(char text[static STAT_TEXT_MAX], uint64_t ns);

/* Returns "s", or "" for one, to be put after a noun. */
const char *stat_plural(uint64_t n);

/*
 * A table that is printed when it is complete, each column as wide as its widest cell. The first letter of a column's
 * heading is '<' (left) or '>' (right) and is not printed. The last column, if it is a left one, is cut at the edge of
 * the terminal; the others are cut to STAT_COLUMN_MAX, because a wide cell makes every row wider.
 */
struct stat_table;

struct stat_table *stat_table_new(const char *const *headings, size_t n_columns);
void stat_table_free(struct stat_table *table);

/* Adds a row of n_columns cells, which are copied and cleaned. */
void stat_table_add(struct stat_table *table, const char *const *cells);

/* Prints the table to stdout, cut to the width; 0: nothing is cut. */
void stat_table_print(const struct stat_table *table, size_t width);

/* Returns the columns of the terminal on stdout, or 0 if it is not a terminal. */
size_t stat_width(void);

/* Prints a clean text to stdout, on lines of that width, indented after the first; 0: on one line. */
void stat_print_lines(const char *text, size_t width);
