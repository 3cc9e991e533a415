/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "dlsym.h"

#include <stddef.h>

#include "common/compat.h"
#include "pool/base.h"
#include "shim/base/libc.h"

_Atomic(gp_dlsym_fn *) gp_real_dlsym;
_Atomic(void *) gp_real_dlopen;
_Atomic unsigned gp_dlsym_calls;

/*
 * Looks up the symbol version that every glibc has. A lookup of a missing version would allocate memory for an error
 * text, but the caller may be another library's malloc that is looking for the C library's malloc.
 */
void *gp_real_dlsym_next(const char *name)
{
	return gp_libc_is_glibc() ? dlvsym(RTLD_NEXT, name, GP_GLIBC) : gp_libc_function(name);
}

bool gp_real_dlsym_resolve(void)
{
	void *found;

	if (gp_likely(atomic_load_explicit(&gp_real_dlsym, memory_order_relaxed) != NULL))
		return true;
	found = gp_real_dlsym_next("dlsym");
	atomic_store_explicit(&gp_real_dlsym, (gp_dlsym_fn *)found, memory_order_relaxed);
	return found != NULL;
}

void *gp_real_dlsym_call(void *handle, const char *name)
{
	/* GCC would load the pointer as if it were not atomic if it were called directly. */
	gp_dlsym_fn *call = atomic_load_explicit(&gp_real_dlsym, memory_order_relaxed);

	return call(handle, name);
}
