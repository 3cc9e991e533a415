/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Whether a program can be started with a library preloaded, found out before it is too late to
 * say.
 */

#include "run_elf.h"
#include "run_say.h"

/*
 * Says why not. The library's headers decide which programs it can go into. ret_has_asan: the program needs the shared
 * library of the address sanitizer.
 */
enum run_status run_program_check(const char *command, const struct run_elf *library, bool *ret_has_asan);

/* Warns of programs that start others where the environment may not follow. */
void run_program_warn(const char *command);
