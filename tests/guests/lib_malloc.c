/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * A preload library of another vendor that interposes malloc. It finds the next malloc with dlsym at its first call,
 * and ignores other interposers. It fills memory that it hands out or gets back with arbitrary bytes.
 */

#include <dlfcn.h>
#include <malloc.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { RUBBISH = 0xa5 };

static void *(*next_malloc)(size_t);
static void (*next_free)(void *);

static void find_next(void)
{
	next_free = (void (*)(void *))dlsym(RTLD_NEXT, "free");
	next_malloc = (void *(*)(size_t))dlsym(RTLD_NEXT, "malloc");
}

void *malloc(size_t bytes)
{
	void *ptr;

	if (!next_malloc)
		find_next();
	ptr = next_malloc(bytes);
	if (ptr)
		memset(ptr, RUBBISH, bytes);
	return ptr;
}

void free(void *ptr)
{
	if (!next_malloc)
		find_next();
	if (ptr)
		memset(ptr, RUBBISH, malloc_usable_size(ptr));
	next_free(ptr);
}

void *calloc(size_t n, size_t bytes)
{
	void *ptr = bytes && n > SIZE_MAX / bytes ? NULL : malloc(n * bytes);

	return ptr ? memset(ptr, 0, n * bytes) : NULL;
}

void *realloc(void *old, size_t bytes)
{
	size_t had = old ? malloc_usable_size(old) : 0;
	void *ptr = malloc(bytes);

	if (ptr && old) {
		memcpy(ptr, old, had < bytes ? had : bytes);
		free(old);
	}
	return ptr;
}
