/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * The library that is preloaded, and the value of LD_PRELOAD that does it. Strings returned are
 * malloc()ed.
 */

#include "run_elf.h"
#include "run_say.h"

/* The library that belongs to this program: of the same build tree, else the installed one. */
char *run_library_default(void);

/* The same file, whatever directory a program changes to. Links are kept. */
char *run_library_absolute(const char *path);

/* Whether it can be preloaded; says why not. */
enum run_status run_library_check(const char *path, struct run_elf *ret_elf);

/*
 * The library first, since whoever defines dlsym first has it; then what was there before, without
 * other copies of the library.
 */
char *run_preload_value(const char *library, const char *before);

/*
 * The options of the address sanitizer for a program that needs its library: what was there before, and that the
 * library need not come first. It would end the program otherwise, and finds as much all the same. In LD_PRELOAD, in
 * front of ours, it would come into every program that this one starts.
 */
char *run_asan_options(const char *before);
