/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* Files that gpupool writes in the program's process. */

#include <stdbool.h>
#include <stddef.h>

/* The letters that may follow a % in a file name, and the line of help about them. */
#define GP_FILE_LETTERS      "phrju"
#define GP_FILE_LETTERS_HELP "%p process id, %h host, %r rank, %j job, %u user"

/*
 * Reads host, user, job and rank once; until then they are unknown. The process id is read each time it is used. Must
 * not run while another thread is in gp_file_expand().
 */
void gp_file_read_names(char *const *environment);

/*
 * Replaces the letters above by their values, and %% by a percent sign. In a value each character outside
 * [A-Za-z0-9._-] becomes "_", so that the value cannot name another directory, and only the first 127 characters are
 * used. Returns false if the result is empty or does not fit.
 */
bool gp_file_expand(char *path, size_t size, const char *path_template);

/*
 * Writes all bytes, without a signal from a pipe without a reader or from a file at its size limit. Returns 0 or
 * -errno. Bytes that were written before an error stay.
 */
int gp_file_write(int fd, const void *data, size_t length);

/* Reads the command line of this process, cut to size; empty if it cannot be read. */
void gp_file_read_command(char *text, size_t size);
