/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Memory of the host that is there when the call returns: mapped, and touched by several threads, in huge pages where
 * the kernel has them. It is for memory that the driver pins afterwards.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { GP_HOST_PAGES_THREADS_MAX = 16 };

struct gp_host_pages_how {
	unsigned threads; /* at most N threads touch the memory, the calling thread among them; 0: one for each of its
			     processors, at most GP_HOST_PAGES_THREADS_MAX */
	int node;         /* the NUMA node that the memory should be on; -1: any */
	bool is_own;      /* the user wants it, not the program: neither a forked child nor a core dump has it */
};

/*
 * Maps and touches memory that begins at a multiple of a huge page. Returns NULL, and leaves nothing behind, if any of
 * it could not be obtained, or if it is more than is left (memory_left.h). The bytes are zero.
 *
 * The mapping is shared, as the driver's own mapping of pinned memory is. So a fork copies no page of it, neither now
 * nor when the parent writes next: the GPU goes on using the pages of the parent, and the child sees these, too. A
 * core dump has the memory, as it has the driver's. Neither has it if is_own is set; then the mapping is private, since
 * kernels give huge pages more readily for such memory.
 *
 * All signals are blocked in the calling thread meanwhile. The call preserves errno and is not a cancellation point.
 */
void *gp_host_pages_map(uint64_t bytes, const struct gp_host_pages_how *how);

/* Gives back memory of gp_host_pages_map, all of it. */
void gp_host_pages_unmap(void *memory, uint64_t bytes);

/* Returns how many processors the calling thread may use. */
unsigned gp_host_processors(void);
