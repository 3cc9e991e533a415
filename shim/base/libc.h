/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * The C library of the process. gpupool works only with glibc, but a container or a pod may set LD_PRELOAD for all
 * programs, including those that are linked with musl. In such a process the library is loaded and does nothing:
 * functions that musl lacks are weak references (compat.h), and the exported dlsym and dlopen call musl's.
 */

#include <stdbool.h>

bool gp_libc_is_glibc(void);

/*
 * Returns the function that the program would find without gpupool: from the first object behind the library that
 * defines the name. NULL if there is none. This is for C libraries without dlvsym, where only dlsym itself could look
 * up dlsym.
 */
void *gp_libc_function(const char *name);
