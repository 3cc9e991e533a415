/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Who asks for memory: the program, or one of its libraries, by the return address of the call. Each file has a number,
 * from 1, for the life of the process, and keeps its name when it is unloaded; 0 is nobody known. A block carries the
 * number of who asked for it (gp_pool_alloc), so that what is held can be told apart without call stacks.
 */

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "runtime.h"

enum { GP_CALLERS_MAX = 1024, GP_CALLERS_SEEN = 4 };

/* Addresses of one file, as good as what is known of a runtime's caller (runtime.h). */
struct gp_caller_part {
	uintptr_t begin, bytes;
	unsigned long long n_unloads;
	unsigned n_lookups;
	uint32_t number;
};

/* Of the thread. */
struct gp_caller {
	uintptr_t address; /* that the last allocating hook was called from */
	uintptr_t behind;  /* while a runtime is called for somebody: he (gp_caller_stand_behind); else 0 */
	struct gp_caller_part seen[GP_CALLERS_SEEN]; /* the last one first */
};

extern _Thread_local struct gp_caller gp_caller __attribute__((tls_model("initial-exec")));

/* The number of the file with that address. Asks the loader about one that the thread has not seen lately. */
uint32_t gp_caller_number(uintptr_t address);
uint32_t gp_caller_now_slow(void);

/* Who calls the hook that is under way: a runtime calls for somebody. */
static inline uintptr_t gp_caller_address(void)
{
	return gp_caller.behind ? gp_caller.behind : gp_caller.address;
}

/* What the thread knows of who calls the hook that is under way, if that is the one who called last; else NULL. */
static inline const struct gp_caller_part *gp_caller_at_hand(void)
{
	const struct gp_caller_part *last = &gp_caller.seen[0];
	unsigned n_lookups = atomic_load_explicit(&gp_runtime_lookups, memory_order_relaxed);
	bool is_last = gp_caller_address() - last->begin < last->bytes && last->n_lookups == n_lookups;

	return __builtin_expect(is_last, 1) ? last : NULL;
}

/*
 * Of the hook that is under way; asked at its beginning, since the program may be called from there. errno stays as it
 * is.
 */
static inline uint32_t gp_caller_now(void)
{
	const struct gp_caller_part *last = gp_caller_at_hand();

	return last ? last->number : gp_caller_now_slow();
}

/* From now on a runtime is called for the one with that address; 0: it has returned. Returns who it was before. */
static inline uintptr_t gp_caller_stand_behind(uintptr_t address)
{
	uintptr_t before = gp_caller.behind;

	gp_caller.behind = address;
	return before;
}

/* The program is called from a hook, and may call others, until the return. */
struct gp_caller_behind {
	uintptr_t address, behind;
};

static inline struct gp_caller_behind gp_caller_leave(void)
{
	struct gp_caller_behind who = {gp_caller.address, gp_caller.behind};

	gp_caller.behind = 0;
	return who;
}

static inline void gp_caller_return(struct gp_caller_behind who)
{
	gp_caller.address = who.address;
	gp_caller.behind = who.behind;
}

/* NULL for nobody known: the path, and its last part. They stay. */
const char *gp_caller_path(uint32_t number);
const char *gp_caller_name(uint32_t number);

/* Whether it is the driver or a runtime: somebody stands behind it. */
bool gp_caller_is_cuda(uint32_t number);

void gp_caller_after_fork_child(void);
