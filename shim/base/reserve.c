/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "reserve.h"

#include <errno.h>
#include <sys/mman.h>

void *gp_reserve(size_t bytes)
{
	void *new = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	return new == MAP_FAILED ? NULL : new;
}

int gp_reserve_once(_Atomic(void *) *memory, size_t bytes)
{
	void *none = NULL, *new;

	if (atomic_load(memory))
		return 0;
	new = gp_reserve(bytes);
	if (!new)
		return -ENOMEM;
	if (!atomic_compare_exchange_strong(memory, &none, new))
		munmap(new, bytes);
	return 0;
}
