/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Finds the runtime that a call is meant for. A program that is linked with a shared CUDA runtime calls cudaMalloc by
 * name, and the loader gives it gpupool's function. A process can have several runtimes, so the calling object decides;
 * its return address identifies it. The result of the search (runtime_find.c) is kept in the thread and in a table for
 * all threads. It is invalid once any object has been unloaded, since another object may lie at the same addresses. The
 * loader is asked about unloads before a function of a runtime is called. A hit calls no such function, and asks the
 * loader only if dlsym has been called since the last check.
 *
 * A runtime is served only in threads and contexts in which one of its calls has succeeded before. So the runtime
 * itself does its lazy initialisation, makes its context current, and reports every error. From version 12 on the
 * current context is known without asking the runtime.
 */

#include "runtime.h"

#include <string.h>

#include "pool/lock.h"
#include "runtime_find.h"
#include "shim/base/fork.h"
#include "shim/base/log.h"
#include "shim/base/state.h"
#include "shim/context/thread.h"
#include "shim/driver/driver_table.h"
#include "shim/trace/object.h"

enum {
	VERSION_MIN = 12000, /* in earlier versions cudaSetDevice does not make the context current */
	RUNTIMES_MAX = 32,   /* bits of an unsigned */
	CALLERS_MAX = 32,    /* in the table for all threads */
};

_Thread_local struct gp_runtime_caller gp_runtime_callers[GP_RUNTIME_CALLERS]
	__attribute__((tls_model("initial-exec")));

static struct gp_mutex lock = GP_MUTEX_INIT(GP_RANK_LEAF);

/* Guarded by lock. */
static struct gp_runtime known[RUNTIMES_MAX]; /* the runtimes that have a bit */
static unsigned n_known;
static struct gp_runtime_caller callers[CALLERS_MAX]; /* ring of the callers that threads found last */
static unsigned n_callers;                            /* found so far */

static void reset_in_child(void)
{
	gp_mutex_init(&lock, GP_RANK_LEAF);
}

static bool contains(const struct gp_runtime_caller *part, uintptr_t caller)
{
	return caller - part->begin < part->bytes;
}

/* Finds a caller in the table for all threads. */
static bool find_shared(uintptr_t caller, struct gp_runtime_caller *ret)
{
	bool is_found = false;

	gp_mutex_lock(&lock);
	for (unsigned i = 0; i < CALLERS_MAX && !is_found; i++) {
		is_found = contains(&callers[i], caller);
		if (is_found)
			*ret = callers[i];
	}
	gp_mutex_unlock(&lock);
	return is_found;
}

static void share(const struct gp_runtime_caller *found)
{
	unsigned i = 0;

	gp_mutex_lock(&lock);
	while (i < CALLERS_MAX && !contains(&callers[i], found->begin))
		i++;
	callers[i < CALLERS_MAX ? i : n_callers++ % CALLERS_MAX] = *found;
	gp_mutex_unlock(&lock);
}

/* Moves the thread's entry for a caller to the front; NULL if it has none. */
static struct gp_runtime_caller *move_to_front(uintptr_t caller)
{
	struct gp_runtime_caller *own_list = gp_runtime_callers, found;
	int i = 0;

	while (i < GP_RUNTIME_CALLERS && !contains(&own_list[i], caller))
		i++;
	if (i == GP_RUNTIME_CALLERS)
		return NULL;
	found = own_list[i];
	memmove(&own_list[1], &own_list[0], (size_t)i * sizeof(found));
	own_list[0] = found;
	return &own_list[0];
}

/* True if no object was unloaded since the entry was found, so that it is still valid. */
static bool is_still_valid(struct gp_runtime_caller *found)
{
	unsigned n_lookups = atomic_load(&gp_dlsym_calls);

	/* In a forked child the loader must not be asked: a thread of the parent may have held its lock. */
	if (!found->is_lasting && !gp_slow_path_is_any(GP_SLOW_PATH_BYPASS) && found->n_unloads != gp_object_unloads())
		return false;
	found->n_lookups = n_lookups;
	return true;
}

unsigned gp_runtime_bit_slow(uintptr_t caller)
{
	struct gp_runtime_caller *first = move_to_front(caller);

	return first && (gp_runtime_is_sure(first) || is_still_valid(first)) ? first->runtime.bit : 0;
}

const struct gp_runtime *gp_runtime_of_slow(uintptr_t caller)
{
	static const struct gp_fork_child child = {.fn = reset_in_child};
	struct gp_runtime_caller *own_list = gp_runtime_callers, *first = move_to_front(caller);
	unsigned n_lookups = atomic_load(&gp_dlsym_calls);

	/* An entry without a runtime is searched again: a runtime may have been loaded since. */
	if (first && first->runtime.cudaMalloc && is_still_valid(first))
		return &first->runtime;
	gp_fork_on_child(&child);
	if (!first)
		memmove(&own_list[1], &own_list[0], (GP_RUNTIME_CALLERS - 1) * sizeof(own_list[0]));
	if (find_shared(caller, &own_list[0]) && own_list[0].runtime.cudaMalloc && is_still_valid(&own_list[0]))
		return &own_list[0].runtime;
	gp_runtime_find(caller, &own_list[0]);
	own_list[0].n_lookups = n_lookups;
	share(&own_list[0]);
	return &own_list[0].runtime;
}

/* Returns the runtime's bit, or 0 if there are too many runtimes. */
static unsigned bit_for(struct gp_runtime *runtime, int version)
{
	bool is_new;
	unsigned i = 0;

	gp_mutex_lock(&lock);
	while (i < n_known && !gp_runtime_is_same(&known[i], runtime))
		i++;
	is_new = i == n_known && i < RUNTIMES_MAX;
	if (is_new)
		known[n_known++] = *runtime;
	i = i < n_known ? 1U << i : 0;
	gp_mutex_unlock(&lock);
	if (is_new)
		gp_log(GP_LOG_INFO,
			"serving cudaMalloc and cudaFree directly for the shared CUDA runtime (version %d.%d)",
			version / 1000, version % 1000 / 10);
	return i;
}

/* Asks the runtime for its version. It is initialised already: an earlier call of the program to it has succeeded. */
static unsigned query_bit(struct gp_runtime runtime)
{
	int version = 0;

	if (!gp_state_is_enabled() || !gp_state.config.is_runtime_served || !runtime.get_version)
		return 0;
	if (runtime.get_version(&version) || version < VERSION_MIN)
		return 0;
	return bit_for(&runtime, version);
}

static unsigned identify(uintptr_t caller)
{
	struct gp_runtime_caller *first = move_to_front(caller);
	unsigned bit;

	if (gp_likely(!first || first->runtime.is_known))
		return first ? first->runtime.bit : 0;
	bit = query_bit(first->runtime);
	/* A tool with callbacks on runtime calls may have made calls meanwhile, so find the entry again. */
	first = move_to_front(caller);
	if (first) {
		first->runtime.is_known = true;
		first->runtime.bit = bit;
		share(first);
	}
	return bit;
}

void gp_runtime_succeeded_slow(uintptr_t caller)
{
	struct gp_thread *self = gp_thread_self;
	CUcontext handle = NULL;
	unsigned bit;

	/* Recording and debugging happen in the hooks of the driver, so every call has to get there. */
	if (!self || gp_slow_path_is_any(GP_SLOW_PATH_WATCHED | GP_SLOW_PATH_BYPASS))
		return;
	bit = identify(caller);
	if (!bit || (self->caches[0].runtimes & bit))
		return;
	if (!gp_real.cuCtxGetCurrent(&handle) && handle && gp_thread_is_usable(&self->caches[0], handle))
		self->caches[0].runtimes |= bit;
}
