/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* Numbers as people read them, and tables of them. */

#include <stddef.h>
#include <stdint.h>

enum { STAT_TEXT_MAX = 32, STAT_COLUMN_MAX = 40 };

/* Three significant digits and an IEC unit: "0 B", "1.65 GiB", "17.0 MiB", "1023 KiB". */
void stat_bytes(char text[static STAT_TEXT_MAX], uint64_t bytes);

/* As CUDA.jl writes it: "0 bytes", "8.000 KiB", "15.744 GiB". */
void stat_bytes_julia(char text[static STAT_TEXT_MAX], uint64_t bytes);

/* A time that something took: "850 ns", "3.21 ms", "12.0 s". */
void stat_duration(char text[static STAT_TEXT_MAX], uint64_t ns);

/* A time that something has been there for: "12s", "5m03s", "3h12m", "4d07h". */
void stat_age(char text[static STAT_TEXT_MAX], uint64_t ns);

/*
 * A table that is printed once all of it is known, each column as wide as its widest cell. The
 * first letter of a column's heading is '<' (left) or '>' (right) and is not printed. The last
 * column, if it is a left one, is cut to what is left of the terminal; the others are cut to
 * STAT_COLUMN_MAX, since each of their cells is paid for in every row.
 */
struct stat_table;

struct stat_table *stat_table_new(const char *const *headings, size_t n_columns);
void stat_table_free(struct stat_table *table);

/* A new row of n_columns cells, copied and cleaned. */
void stat_table_add(struct stat_table *table, const char *const *cells);

/* To stdout. Width 0: nothing is cut. */
void stat_table_print(const struct stat_table *table, size_t width);

/* Columns of the terminal on stdout; 0 if it is none. */
size_t stat_width(void);

/* A clean text, to stdout: on lines of that many columns, those after the first a little further in. 0: on one. */
void stat_print_lines(const char *text, size_t width);
