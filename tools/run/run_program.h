/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Checks, before it is started, that a program can run with a library preloaded.
 */

#include <limits.h>

#include "run_elf.h"
#include "run_say.h"

/*
 * Returns RUN_OK, or another status after a message. library: the headers of the library; a program must have the same
 * class, byte order and machine. ret_has_asan: true if the program needs the shared library of the address sanitizer.
 */
enum run_status run_program_check(const char *command, const struct run_elf *library, bool *ret_has_asan);

/*
 * Finds the program that runs in the end: the command itself, or the interpreter of a script, or what env starts. False
 * if there is none, or if it cannot be read.
 */
bool run_program_find(const char *command, char path[static PATH_MAX]);

/* Warns about programs that may start CMD without their environment, such as docker or ssh. */
void run_program_warn(const char *command);
