/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* Runs a program for its output, within a time. */

#include <stddef.h>

/*
 * Runs the program at path with these words, of which the first is its name. settings: NAME=VALUE up to NULL, set in
 * its environment before it starts. out gets what it prints on stdout and stderr, at most size - 1 bytes; its input is
 * empty. Returns its exit status, 128 plus the number of the signal that ended it, or -errno. -ETIMEDOUT: it did not
 * end within RUN_CHILD_SECONDS, and was killed.
 */
int run_child(const char *path, const char *const *words, const char *const *settings, char *out, size_t size);

enum { RUN_CHILD_SECONDS = 60 };
