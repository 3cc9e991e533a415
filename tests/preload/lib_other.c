/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* A preload library of another vendor that also interposes dlsym, and finds the next dlsym by its version. */

#include <dlfcn.h>
#include <stddef.h>

#include "lib_other.h"

typedef void *(*dlsym_fn)(void *handle, const char *name);

void *dlsym(void *handle, const char *name)
{
	static dlsym_fn next;

	if (!next)
		next = (dlsym_fn)dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
	if (!next)
		next = (dlsym_fn)dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.17");
	return next ? next(handle, name) : NULL;
}
