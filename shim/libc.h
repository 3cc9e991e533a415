/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Which C library the process has. gpupool works with glibc alone, but a container or a pod may set LD_PRELOAD for
 * every program, also for one that is linked with musl. There the library is loaded and does nothing: what musl has not
 * is referred to weakly (compat.h), and dlsym and dlopen, which the library exports, go to musl's.
 */

#include <stdbool.h>

bool gp_libc_is_glibc(void);

/*
 * The function of that name that the program would have found without gpupool: of the first object behind the library
 * that defines it. For a C library without dlvsym, whose own dlsym cannot be asked for itself. NULL: there is none.
 */
void *gp_libc_function(const char *name);
