/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Each thread remembers the last calling modules, and asks the loader again when another file may have been loaded at
 * their addresses. The names are in memory that is never freed, so readers need no lock.
 */

#include "module.h"

#include <errno.h>
#include <string.h>

#include "object.h"
#include "pool/lock.h"
#include "shim/base/fork.h"
#include "shim/base/reserve.h"
#include "shim/base/slow_path.h"

typedef char path[GP_OBJECT_PATH_MAX];

_Thread_local struct gp_module gp_module __attribute__((tls_model("initial-exec")));

static _Atomic(void *) paths;
static _Atomic uint32_t n_paths;
static struct gp_mutex lock = GP_MUTEX_INIT(GP_RANK_LEAF); /* taken to add a name */

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

static void reset_in_child(void)
{
	gp_mutex_init(&lock, GP_RANK_LEAF);
}

/* Returns the number of a name, and adds the name if needed. 0 if there is no room. */
static uint32_t intern(const char *name)
{
	static const struct gp_fork_child child = {.fn = reset_in_child};
	uint32_t number = find(name, atomic_load(&n_paths)), n;

	if (number || gp_reserve_once(&paths, GP_MODULES_MAX * sizeof(path)))
		return number;
	gp_fork_on_child(&child);
	gp_mutex_lock(&lock);
	n = atomic_load(&n_paths);
	number = find(name, n);
	if (!number && n < GP_MODULES_MAX) {
		number = n + 1;
		strcpy(*path_of(number), name);
		atomic_store(&n_paths, number);
	}
	gp_mutex_unlock(&lock);
	return number;
}

/*
 * Finds the file of an address. For code that is in no file, the part has only that address. The counters are read
 * first, so that a file that is unloaded meanwhile is looked up again later.
 */
static struct gp_module_part look_up(uintptr_t address)
{
	struct gp_module_part part = {
		.begin = address,
		.bytes = 1,
		.n_lookups = atomic_load(&gp_dlsym_calls),
		.n_unloads = gp_object_unloads(),
	};
	struct gp_object object;

	if (gp_object_find(address, &object)) {
		part.begin = object.start;
		part.bytes = object.end - object.start;
		part.number = *object.path ? intern(object.path) : 0;
	}
	return part;
}

/* True if no file was unloaded since the part was looked up. Then the part is valid for the dlsym calls so far, too. */
static bool is_still_valid(struct gp_module_part *part)
{
	unsigned n_lookups = atomic_load(&gp_dlsym_calls);

	if (part->n_unloads != gp_object_unloads())
		return false;
	part->n_lookups = n_lookups;
	return true;
}

uint32_t gp_module_number(uintptr_t address)
{
	struct gp_module_part *seen = gp_module.seen, part;
	size_t i = 0;

	/* In a forked child, the loader's lock may be held by a thread of the parent, which does not exist there. */
	if (gp_slow_path_is_any(GP_SLOW_PATH_BYPASS))
		return 0;
	while (i < GP_MODULES_SEEN - 1 && address - seen[i].begin >= seen[i].bytes)
		i++;
	part = seen[i];
	if (address - part.begin >= part.bytes || !is_still_valid(&part))
		part = look_up(address);
	memmove(&seen[1], &seen[0], i * sizeof(*seen));
	seen[0] = part;
	return part.number;
}

uint32_t gp_module_now_slow(void)
{
	int saved_errno = errno;
	uint32_t number = gp_module_number(gp_module_address());

	errno = saved_errno;
	return number;
}

/*
 * A thread may read a block's number before it sees that the name was added, since it does not synchronise with the
 * thread that added it. The path is unknown then.
 */
const char *gp_module_path(uint32_t number)
{
	return number && number <= atomic_load(&n_paths) ? *path_of(number) : NULL;
}

const char *gp_module_name(uint32_t number)
{
	const char *whole = gp_module_path(number), *slash = whole ? strrchr(whole, '/') : NULL;

	return slash ? slash + 1 : whole;
}

bool gp_module_is_cuda(uint32_t number)
{
	const char *name = gp_module_name(number);

	return name && gp_object_is_cuda(name);
}
