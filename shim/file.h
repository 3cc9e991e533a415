/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* Files that gpupool writes in the program's process. */

#include <stdbool.h>
#include <stddef.h>

/* The letters that may follow a % in a file name, and the line that tells users about them. */
#define GP_FILE_LETTERS	     "phrju"
#define GP_FILE_LETTERS_HELP "%p process id, %h host, %r rank, %j job, %u user"

/*
 * Reads host, user, job and rank once; the process id is asked for each time. Before the first call they are unknown.
 * Not safe beside gp_file_expand() in another thread.
 */
void gp_file_read_names(char *const *environment);

/*
 * A name with the letters above replaced by their values, and %% by a percent sign. In a value each character outside
 * [A-Za-z0-9._-] becomes "_", so that it is never a path of its own, and what follows the 127th is left out. False if
 * the name is empty or does not fit.
 */
bool gp_file_expand(char *path, size_t size, const char *path_template);

/*
 * Writes all of it. No signal comes of it, neither from a pipe without a reader nor from a file at its limit.
 * 0 or -errno; what was written until then stays.
 */
int gp_file_write(int fd, const void *data, size_t length);

/* The process's own command line, as far as it goes; empty if it cannot be read. */
void gp_file_read_command(char *text, size_t size);
