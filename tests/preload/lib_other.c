/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Somebody else's preload library that stands in the way of dlsym too, and finds the next one by its version. */

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
