/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Which runtime is meant. Programs that are linked with a shared CUDA runtime call cudaMalloc by name, and the loader
 * gives them ours. A process can have several runtimes, so the object that calls decides, which is known by the return
 * address. What was found for it (runtime_find.c) is kept, by each thread for itself and for all, and found again when
 * anything has been unloaded since, as its place may be another's now. The loader is asked for that before anything of
 * a runtime is called; a hit calls nothing, and asks only if dlsym has been called since.
 *
 * A runtime is served only in threads and contexts in which a call of its own has succeeded before. So its lazy
 * initialisation, the context that it makes current, and every error are its own; and what the current context is
 * needs no runtime to tell, from version 12 on.
 */

#include "runtime.h"

#include <string.h>

#include "../pool/lock.h"
#include "log.h"
#include "real.h"
#include "state.h"
#include "thread.h"

enum {
	VERSION_MIN = 12000, /* before, cudaSetDevice did not yet make the context current */
	RUNTIMES_MAX = 32,   /* bits */
	CALLERS_MAX = 32,    /* that threads to come need not look for */
};

_Thread_local struct gp_runtime_caller gp_runtime_callers[GP_RUNTIME_CALLERS]
	__attribute__((tls_model("initial-exec")));
_Atomic unsigned gp_runtime_lookups;

static struct gp_mutex lock = GP_MUTEX_INIT(GP_RANK_LEAF);
static struct gp_runtime known[RUNTIMES_MAX]; /* that have a bit; all of this under the lock */
static unsigned n_known;
static struct gp_runtime_caller callers[CALLERS_MAX]; /* that any thread found, the latest */
static unsigned n_callers;			      /* so far */

static bool is_in(const struct gp_runtime_caller *part, uintptr_t caller)
{
	return caller - part->begin < part->bytes;
}

/* What other threads have found. */
static bool recall(uintptr_t caller, struct gp_runtime_caller *ret)
{
	bool is_found = false;

	gp_mutex_lock(&lock);
	for (unsigned i = 0; i < CALLERS_MAX && !is_found; i++) {
		is_found = is_in(&callers[i], caller);
		if (is_found)
			*ret = callers[i];
	}
	gp_mutex_unlock(&lock);
	return is_found;
}

static void keep(const struct gp_runtime_caller *found)
{
	unsigned i = 0;

	gp_mutex_lock(&lock);
	while (i < CALLERS_MAX && !is_in(&callers[i], found->begin))
		i++;
	callers[i < CALLERS_MAX ? i : n_callers++ % CALLERS_MAX] = *found;
	gp_mutex_unlock(&lock);
}

/* The thread's entry for a caller becomes the first; NULL if it has none. */
static struct gp_runtime_caller *to_front(uintptr_t caller)
{
	struct gp_runtime_caller *mine = gp_runtime_callers, found;
	int i = 0;

	while (i < GP_RUNTIME_CALLERS && !is_in(&mine[i], caller))
		i++;
	if (i == GP_RUNTIME_CALLERS)
		return NULL;
	found = mine[i];
	memmove(&mine[1], &mine[0], (size_t)i * sizeof(found));
	mine[0] = found;
	return &mine[0];
}

/* Whether what was found is still there. */
static bool is_still(struct gp_runtime_caller *found)
{
	unsigned n_lookups = atomic_load(&gp_runtime_lookups);

	/* In a forked child the loader's lock may be held by nobody who is left. */
	if (!found->is_lasting && !gp_is_unusual(GP_UNUSUAL_BYPASS) && found->n_unloads != gp_runtime_unloads())
		return false;
	found->n_lookups = n_lookups;
	return true;
}

unsigned gp_runtime_bit_slow(uintptr_t caller)
{
	struct gp_runtime_caller *first = to_front(caller);

	return first && (gp_runtime_is_sure(first) || is_still(first)) ? first->runtime.bit : 0;
}

const struct gp_runtime *gp_runtime_of_slow(uintptr_t caller)
{
	struct gp_runtime_caller *mine = gp_runtime_callers, *first = to_front(caller);
	unsigned n_lookups = atomic_load(&gp_runtime_lookups);

	/* Where there was no runtime one may have come. */
	if (first && first->runtime.cudaMalloc && is_still(first))
		return &first->runtime;
	gp_state_watch_forks();
	if (!first)
		memmove(&mine[1], &mine[0], (GP_RUNTIME_CALLERS - 1) * sizeof(mine[0]));
	if (recall(caller, &mine[0]) && mine[0].runtime.cudaMalloc && is_still(&mine[0]))
		return &mine[0].runtime;
	gp_runtime_find(caller, &mine[0]);
	mine[0].n_lookups = n_lookups;
	keep(&mine[0]);
	return &mine[0].runtime;
}

/* 0 if there are too many. */
static unsigned bit_of(struct gp_runtime *runtime, int version)
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
		gp_log(GP_LOG_INFO, "a shared runtime, version %d: what the pool has is had without it", version);
	return i;
}

/* Once the program itself has called it with success, the question for its version starts nothing. */
static unsigned ask_for_bit(struct gp_runtime runtime)
{
	int version = 0;

	if (!gp_state_is_enabled() || !gp_state.config.is_runtime_served || !runtime.get_version)
		return 0;
	if (runtime.get_version(&version) || version < VERSION_MIN)
		return 0;
	return bit_of(&runtime, version);
}

static unsigned get_to_know(uintptr_t caller)
{
	struct gp_runtime_caller *first = to_front(caller);
	unsigned bit;

	if (gp_likely(!first || first->runtime.is_known))
		return first ? first->runtime.bit : 0;
	bit = ask_for_bit(first->runtime);
	/* Who listens to the runtime's calls may have made some in between. */
	first = to_front(caller);
	if (first) {
		first->runtime.is_known = true;
		first->runtime.bit = bit;
		keep(first);
	}
	return bit;
}

void gp_runtime_succeeded_slow(uintptr_t caller)
{
	struct gp_thread *self = gp_thread_self;
	CUcontext handle = NULL;
	unsigned bit;

	/* What is recorded is what the driver's functions are asked: one way is enough. */
	if (!self || gp_is_unusual(GP_UNUSUAL_WATCHED | GP_UNUSUAL_BYPASS))
		return;
	bit = get_to_know(caller);
	if (!bit || (self->caches[0].runtimes & bit))
		return;
	if (!gp_real.cuCtxGetCurrent(&handle) && handle && gp_thread_is_usable(&self->caches[0], handle))
		self->caches[0].runtimes |= bit;
}

void gp_runtime_after_fork_child(void)
{
	gp_mutex_init(&lock, GP_RANK_LEAF);
}
