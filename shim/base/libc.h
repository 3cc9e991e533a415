/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * The C library of the process. gpupool works with glibc alone, but a container or a pod may set LD_PRELOAD for every
 * program, also for one that is linked with musl. In such a process the library is loaded and does nothing: functions
 * that musl does not have are weak references (compat.h), and the exported dlsym and dlopen go to musl's.
 */

#include <stdbool.h>

bool gp_libc_is_glibc(void);

/*
 * Returns the function that the program would find without gpupool: that of the first object behind the library that
 * defines the name, or NULL. For C libraries without dlvsym, where dlsym itself cannot be looked up by dlsym.
 */
void *gp_libc_function(const char *name);
