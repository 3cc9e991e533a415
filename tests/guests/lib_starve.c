/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Makes memory run out for libgpupool.so alone. STARVE=N fails its Nth request of malloc, calloc, realloc or mmap,
 * and STARVE=N+ fails the Nth and all later requests. The tests preload it before libgpupool.so.
 */

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static uintptr_t start, end; /* address range of libgpupool.so */
static _Atomic unsigned n_requests;

static int find_library(struct dl_phdr_info *info, size_t size, void *unused)
{
	const char *name = strrchr(info->dlpi_name, '/');

	if (!name || strcmp(name, "/libgpupool.so") != 0)
		return 0;
	start = end = info->dlpi_addr;
	for (int i = 0; i < info->dlpi_phnum; i++) {
		uintptr_t last = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr + info->dlpi_phdr[i].p_memsz;

		if (info->dlpi_phdr[i].p_type == PT_LOAD && last > end)
			end = last;
	}
	return 1;
}

static bool starves(const void *caller)
{
	const char *setting = getenv("STARVE");
	unsigned n, wanted;

	if (!start)
		dl_iterate_phdr(find_library, NULL);
	if (!setting || (uintptr_t)caller < start || (uintptr_t)caller >= end)
		return false;
	n = ++n_requests;
	wanted = (unsigned)atoi(setting);
	if (n != wanted && !(n > wanted && strchr(setting, '+')))
		return false;
	errno = ENOMEM;
	return true;
}

#define NEXT(function)                     \
	static __typeof__(&function) next; \
	if (!next)                         \
	next = (__typeof__(next))dlsym(RTLD_NEXT, #function)

void *malloc(size_t bytes)
{
	NEXT(malloc);
	return starves(__builtin_return_address(0)) ? NULL : next(bytes);
}

void *calloc(size_t n, size_t bytes)
{
	NEXT(calloc);
	return starves(__builtin_return_address(0)) ? NULL : next(n, bytes);
}

void *realloc(void *old, size_t bytes)
{
	NEXT(realloc);
	return starves(__builtin_return_address(0)) ? NULL : next(old, bytes);
}

void *mmap64(void *where, size_t bytes, int protection, int flags, int fd, off64_t offset)
{
	NEXT(mmap64);
	return starves(__builtin_return_address(0)) ? MAP_FAILED : next(where, bytes, protection, flags, fd, offset);
}
