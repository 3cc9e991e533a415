/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Chooses the library to preload, and makes the value of LD_PRELOAD. Returned strings are to be freed by the caller.
 */

#include "run_elf.h"
#include "run_say.h"

/*
 * Returns the path of the library that belongs to this program: that of the same build tree, or that of the same
 * installation, which may have been copied or moved, or else the one at the configured prefix.
 */
char *run_library_default(void);

/*
 * Returns the path of the start-up hook for Python that belongs to this program, found in the same way: an archive of
 * Python modules.
 */
char *run_hook_default(void);

/* Returns an absolute path, since the program may change its directory. Symbolic links are kept. */
char *run_library_absolute(const char *path);

/* Checks that the library can be preloaded. Returns RUN_OK, or another status after a message. */
enum run_status run_library_check(const char *path, struct run_elf *ret_elf);

/*
 * Returns the value of LD_PRELOAD: the library, then the entries before, without other copies of the library. The
 * library is first because a process uses the first definition of dlsym.
 */
char *run_preload_value(const char *library, const char *before);

/* Returns a copy of the environment, which setenv() does not change. */
char **run_environment_copy(void);

/* Removes the library, and other copies of it, from LD_PRELOAD in an environment that was copied. */
void run_environment_clean(char **environment, const char *library);

/*
 * Returns the value of ASAN_OPTIONS for a program that needs the library of the address sanitizer: the options before,
 * and verify_asan_link_order=0. Otherwise the sanitizer would end the program, because its library is not the first; it
 * finds the same errors in any order. To put its library into LD_PRELOAD before ours would be worse: it would be loaded
 * into every program that this one starts.
 */
char *run_asan_options(const char *before);
