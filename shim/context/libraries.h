/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Libraries that let a network card touch device memory outside CUDA's order: MPI, UCX, libfabric and the verbs. A
 * program may load one at any time, and from then on a GPU wait is not enough for reuse.
 *
 * A look at all loaded libraries takes a lock of the loader. So an allocation looks only when the pool grows, and after
 * a dlopen, which sets GP_SLOW_PATH_LIBRARIES. gpupool's dlopen jumps to the C library's, so gpupool does not see when
 * the call returns. The bit stays set until each thread that entered dlopen has been seen again: in dlsym, in dlopen or
 * in an allocation. By then its library is mapped, with all its dependencies, even if its constructors still run. A
 * thread that is never seen again cannot keep the other threads off the fast path for good: after LOOKS_MAX looks the
 * bit is cleared nevertheless. It is set again once that thread is seen.
 *
 * Nothing here waits for a dlopen, so a constructor may allocate device memory.
 */

#include "pool/base.h"
#include "shim/base/slow_path.h"

/* This thread is about to load a library. */
void gp_libraries_opening(void);

/* This thread is back from dlopen, or in a constructor that runs there. */
extern _Thread_local bool gp_libraries_is_opening __attribute__((tls_model("initial-exec")));
void gp_libraries_opened_slow(void);

static inline void gp_libraries_opened(void)
{
	if (gp_unlikely(gp_libraries_is_opening))
		gp_libraries_opened_slow();
}

/* Returns the name of a library in the process, as of the last look, that needs whole driver allocations; or NULL. */
const char *gp_libraries_needing_whole(void);

/* Looks for the libraries, and makes reuse wait for completion once there is one. No lock may be held. */
void gp_libraries_look(void);

/* The same at an allocation, which only looks when a library may have been loaded. */
static inline void gp_libraries_see(void)
{
	if (gp_unlikely(gp_slow_path_is_any(GP_SLOW_PATH_LIBRARIES)))
		gp_libraries_look();
}
