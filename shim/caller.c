/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Each thread remembers the last files that called, and looks again where another file may have come to lie since. The
 * names are in memory of their own, which is never given back: readers need no lock.
 */

#include "caller.h"

#include <errno.h>
#include <string.h>

#include "../pool/base.h"
#include "../pool/lock.h"
#include "object.h"
#include "real.h"
#include "reserve.h"
#include "unusual.h"

typedef char path[GP_OBJECT_PATH_MAX];

_Thread_local struct gp_caller gp_caller __attribute__((tls_model("initial-exec")));

static _Atomic(void *) paths;
static _Atomic uint32_t n_paths;
static struct gp_mutex lock = GP_MUTEX_INIT(GP_RANK_LEAF); /* of who adds */

static path *path_of(uint32_t number)
{
	return (path *)atomic_load(&paths) + (number - 1);
}

static uint32_t find(const char *name, uint32_t n)
{
	for (uint32_t number = 1; number <= n; number++)
		if (strcmp(*path_of(number), name) == 0)
			return number;
	return 0;
}

/* 0 if there is no room for another. */
static uint32_t intern(const char *name)
{
	uint32_t number = find(name, atomic_load(&n_paths)), n;

	if (number || gp_reserve_once(&paths, GP_CALLERS_MAX * sizeof(path)))
		return number;
	gp_mutex_lock(&lock);
	n = atomic_load(&n_paths);
	number = find(name, n);
	if (!number && n < GP_CALLERS_MAX) {
		number = n + 1;
		strcpy(*path_of(number), name);
		atomic_store(&n_paths, number);
	}
	gp_mutex_unlock(&lock);
	return number;
}

/* Code in no file is known by its very address. What is unloaded while it is looked for is looked for again. */
static struct gp_caller_part look_up(uintptr_t address)
{
	struct gp_caller_part part = {
		.begin = address,
		.bytes = 1,
		.n_lookups = atomic_load(&gp_runtime_lookups),
		.n_unloads = gp_runtime_unloads(),
	};
	struct gp_object object;

	if (gp_object_find(address, &object)) {
		part.begin = object.start;
		part.bytes = object.end - object.start;
		part.number = *object.path ? intern(object.path) : 0;
	}
	return part;
}

static bool is_still(struct gp_caller_part *part)
{
	unsigned n_lookups = atomic_load(&gp_runtime_lookups);

	if (part->n_unloads != gp_runtime_unloads())
		return false;
	part->n_lookups = n_lookups;
	return true;
}

uint32_t gp_caller_number(uintptr_t address)
{
	struct gp_caller_part *seen = gp_caller.seen, part;
	size_t i = 0;

	/* In a forked child the loader's lock may be held by nobody who is left. */
	if (gp_is_unusual(GP_UNUSUAL_BYPASS))
		return 0;
	while (i < GP_CALLERS_SEEN - 1 && address - seen[i].begin >= seen[i].bytes)
		i++;
	part = seen[i];
	if (address - part.begin >= part.bytes || !is_still(&part))
		part = look_up(address);
	memmove(&seen[1], &seen[0], i * sizeof(*seen));
	seen[0] = part;
	return part.number;
}

uint32_t gp_caller_now_slow(void)
{
	int saved_errno = errno;
	uint32_t number = gp_caller_number(gp_caller_address());

	errno = saved_errno;
	return number;
}

/* A block may tell a number before this thread can see the name: nothing else passes between it and who gave it. */
const char *gp_caller_path(uint32_t number)
{
	return number && number <= atomic_load(&n_paths) ? *path_of(number) : NULL;
}

const char *gp_caller_name(uint32_t number)
{
	const char *whole = gp_caller_path(number), *slash = whole ? strrchr(whole, '/') : NULL;

	return slash ? slash + 1 : whole;
}

bool gp_caller_is_cuda(uint32_t number)
{
	const char *name = gp_caller_name(number);

	return name && gp_object_is_cuda(name);
}

void gp_caller_after_fork_child(void)
{
	gp_mutex_init(&lock, GP_RANK_LEAF);
}
