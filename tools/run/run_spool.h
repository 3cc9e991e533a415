/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* Temporary files that keep the output of a command. They have no name, so nothing stays behind. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* Returns a descriptor of a new file in $TMPDIR or /tmp, or -1 after a message. */
int run_spool_open(void);

/* The first difference of two files. */
struct run_difference {
	bool is_different;
	uint64_t line;      /* from 1 */
	char texts[2][128]; /* the line in each file, cut; "" if the file has ended */
};

/* Compares the files from their start. Returns false if one cannot be read. */
bool run_spool_compare(int a_fd, int b_fd, struct run_difference *ret);

/* Prints the last lines of a file on stderr, each after an indent. */
void run_spool_tail(int fd, unsigned n_lines);
