/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "libraries.h"

#include <link.h>
#include <string.h>

#include "context.h"
#include "shim/base/fork.h"
#include "shim/driver/driver_table.h"
#include "shim/driver/submit.h"
#include "thread.h"

/* Limit of looks while a thread may be inside dlopen. A look takes about 100 ns, so all of them take some 7 ms. */
enum { LOOKS_MAX = 1 << 16 };

/*
 * Prefixes of file names. needs_whole: the library exports memory by legacy IPC handles, so blocks must be whole
 * driver allocations. The verbs do not use such handles. (NCCL loads the verbs in every job on several GPUs, so whole
 * blocks would cost many programs memory.)
 */
static const struct library {
	const char *name;
	bool needs_whole;
} libraries[] = {
	{"libmpi.so", true},
	{"libmpi_cxx.so", true},
	{"libmpi_ibm.so", true},
	{"libmpich.so", true},
	{"libucp.so", true},
	{"libuct.so", true},
	{"libfabric.so", true},
	{"libibverbs.so", false},
};

_Thread_local bool gp_libraries_is_opening __attribute__((tls_model("initial-exec")));

static _Atomic unsigned long long looked_at; /* number of objects that had been loaded at the last look */
static _Atomic unsigned n_opening;           /* threads that entered dlopen and have not been seen since */
static _Atomic unsigned n_openings;          /* times that the bit was set; wraps */
static _Atomic unsigned n_looks;             /* looks since the bit was set, while a thread may be inside dlopen */

static _Atomic(const char *) needing_whole; /* name of a library, or NULL */

const char *gp_libraries_needing_whole(void)
{
	return atomic_load(&needing_whole);
}

struct found {
	const struct library *any, *whole; /* or NULL */
};

static int check_library(struct dl_phdr_info *info, size_t size, void *arg)
{
	const char *base = info->dlpi_name ? strrchr(info->dlpi_name, '/') : NULL;
	struct found *found = arg;

	if (atomic_load_explicit(&looked_at, memory_order_relaxed) == info->dlpi_adds)
		return 1;
	base = base ? base + 1 : info->dlpi_name;
	for (size_t i = 0; base && i < sizeof(libraries) / sizeof(libraries[0]); i++) {
		if (strncmp(base, libraries[i].name, strlen(libraries[i].name)) != 0)
			continue;
		found->any = &libraries[i];
		if (libraries[i].needs_whole)
			found->whole = &libraries[i];
	}
	return 0;
}

static int count(struct dl_phdr_info *info, size_t size, void *loaded)
{
	*(unsigned long long *)loaded = info->dlpi_adds;
	return 1;
}

/* Stores the count last: another thread that reads it relies on what this look has found. */
static void search_libraries(void)
{
	unsigned long long loaded = 0;
	struct found found = {NULL, NULL};

	dl_iterate_phdr(count, &loaded);
	if (atomic_load(&looked_at) == loaded)
		return;
	dl_iterate_phdr(check_library, &found);
	if (found.any)
		gp_context_need_completion(found.any->name);
	if (found.whole) {
		atomic_store(&needing_whole, found.whole->name);
		gp_context_need_whole(found.whole->name);
	}
	atomic_store(&looked_at, loaded);
}

/* Sets the bit after the counters, since a look that clears the bit reads them again. */
static void set_bit(void)
{
	atomic_store(&n_looks, 0);
	atomic_fetch_add(&n_openings, 1);
	atomic_fetch_or(&gp_slow_path, GP_SLOW_PATH_LIBRARIES);
}

/* A forked child has only this thread, so the dlopen of another thread never ends there. */
static void reset_in_child(void)
{
	atomic_store(&n_opening, gp_libraries_is_opening);
}

/* Called at each look, that is at each growth of a pool. */
static void watch_forks(void)
{
	static const struct gp_fork_child child = {.fn = reset_in_child};
	static _Atomic bool is_watching;

	if (gp_likely(atomic_load(&is_watching)))
		return;
	gp_fork_on_child(&child);
	atomic_store(&is_watching, true);
}

void gp_libraries_opening(void)
{
	/* A process that makes no CUDA call gets no handler for its forks. */
	if (gp_real_is_found())
		watch_forks();
	/* This keeps the thread's next allocation off the fast path, even if another thread clears the bit. */
	gp_thread_forget_current();
	if (!gp_libraries_is_opening)
		atomic_fetch_add(&n_opening, 1);
	gp_libraries_is_opening = true;
	set_bit();
	/* The library may register device memory with a network card. A sleep that begins now sees the bit. */
	gp_submit_await();
}

void gp_libraries_opened_slow(void)
{
	gp_libraries_is_opening = false;
	atomic_fetch_sub(&n_opening, 1);
	set_bit();
}

/*
 * Returns true if no thread may be inside dlopen, so that all its libraries are mapped, or after LOOKS_MAX looks.
 */
static bool is_settled(void)
{
	return !atomic_load(&n_opening) || atomic_fetch_add(&n_looks, 1) >= LOOKS_MAX;
}

void gp_libraries_look(void)
{
	unsigned before;
	bool may_clear;

	watch_forks();
	gp_libraries_opened();
	before = atomic_load(&n_openings);
	may_clear = gp_slow_path_is_any(GP_SLOW_PATH_LIBRARIES) && is_settled();
	search_libraries();
	if (!may_clear)
		return;
	atomic_fetch_and(&gp_slow_path, ~(unsigned)GP_SLOW_PATH_LIBRARIES);
	if (atomic_load(&n_openings) != before)
		atomic_fetch_or(&gp_slow_path, GP_SLOW_PATH_LIBRARIES);
}
