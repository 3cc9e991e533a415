/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "libraries.h"

#include <link.h>
#include <stdatomic.h>
#include <string.h>

#include "state.h"

static const char *const names[] = {
	"libmpi.so", "libmpi_cxx.so", "libmpich.so", "libucp.so", "libuct.so", "libfabric.so"};

static _Atomic unsigned long long looked_at; /* how many objects had been loaded at the last look */

static int look_at(struct dl_phdr_info *info, size_t size, void *found)
{
	unsigned long long loaded = info->dlpi_adds;
	const char *base = info->dlpi_name ? strrchr(info->dlpi_name, '/') : NULL;

	if (atomic_load_explicit(&looked_at, memory_order_relaxed) == loaded)
		return 1;
	base = base ? base + 1 : info->dlpi_name;
	for (size_t i = 0; base && i < sizeof(names) / sizeof(names[0]); i++)
		if (strncmp(base, names[i], strlen(names[i])) == 0)
			*(const char **)found = names[i];
	return 0;
}

static int count(struct dl_phdr_info *info, size_t size, void *loaded)
{
	*(unsigned long long *)loaded = info->dlpi_adds;
	return 1;
}

void gp_libraries_look(void)
{
	unsigned long long loaded = 0;
	const char *found = NULL;

	dl_iterate_phdr(count, &loaded);
	if (atomic_load_explicit(&looked_at, memory_order_relaxed) == loaded)
		return;
	dl_iterate_phdr(look_at, &found);
	atomic_store_explicit(&looked_at, loaded, memory_order_relaxed);
	if (!found)
		return;
	gp_state_need_completion(found);
	gp_state_need_whole(found);
}
