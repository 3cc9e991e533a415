/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * The calling module is the file whose code asked for memory: the program or one of its libraries. The return address
 * of the call shows it. Each file has a number, from 1 on, and keeps it and its name for the life of the process, even
 * if it is unloaded. 0 means unknown. A block carries the number of its calling module (gp_pool_alloc), so that memory
 * can be attributed without call stacks.
 */

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "shim/driver/dlsym.h"

enum { GP_MODULES_MAX = 1024, GP_MODULES_SEEN = 4 };

/* The addresses of one file, and the counters that show when the loader has to be asked again (module.c). */
struct gp_module_part {
	uintptr_t begin, bytes;
	unsigned long long n_unloads;
	unsigned n_lookups;
	uint32_t number;
};

/* A thread's knowledge of its calling modules. */
struct gp_module {
	uintptr_t address;      /* return address of the last allocating hook */
	uintptr_t on_behalf_of; /* the original caller while a runtime is called on behalf of it; else 0 */
	struct gp_module_part seen[GP_MODULES_SEEN]; /* the most recent first */
};

extern _Thread_local struct gp_module gp_module __attribute__((tls_model("initial-exec")));

/*
 * Returns the number of the file that contains the address. Asks the loader if the file is not among the last
 * GP_MODULES_SEEN that called in this thread.
 */
uint32_t gp_module_number(uintptr_t address);
uint32_t gp_module_now_slow(void);

/* Returns the return address of the current hook. If a runtime called the hook, that of the runtime's caller. */
static inline uintptr_t gp_module_address(void)
{
	return gp_module.on_behalf_of ? gp_module.on_behalf_of : gp_module.address;
}

/* Returns the thread's latest entry if it is that of the calling module of the current hook; otherwise NULL. */
static inline const struct gp_module_part *gp_module_current(void)
{
	const struct gp_module_part *last = &gp_module.seen[0];
	unsigned n_lookups = atomic_load_explicit(&gp_dlsym_calls, memory_order_relaxed);
	bool is_last = gp_module_address() - last->begin < last->bytes && last->n_lookups == n_lookups;

	return __builtin_expect(is_last, 1) ? last : NULL;
}

/*
 * Returns the number of the calling module of the current hook. To be called at the hook's beginning, since the hook
 * may call the program. Keeps errno.
 */
static inline uint32_t gp_module_now(void)
{
	const struct gp_module_part *last = gp_module_current();

	return last ? last->number : gp_module_now_slow();
}

/*
 * Sets the original caller, by its address, while a runtime is called on behalf of it; 0: the runtime has returned.
 * Returns the address that was set before.
 */
static inline uintptr_t gp_module_begin_on_behalf_of(uintptr_t address)
{
	uintptr_t before = gp_module.on_behalf_of;

	gp_module.on_behalf_of = address;
	return before;
}

/* The caller of a hook. It is saved while the hook calls a function of the program, which may call other hooks. */
struct gp_module_saved {
	uintptr_t address, on_behalf_of;
};

static inline struct gp_module_saved gp_module_leave(void)
{
	struct gp_module_saved saved = {gp_module.address, gp_module.on_behalf_of};

	gp_module.on_behalf_of = 0;
	return saved;
}

static inline void gp_module_return(struct gp_module_saved saved)
{
	gp_module.address = saved.address;
	gp_module.on_behalf_of = saved.on_behalf_of;
}

/* Return a file's path, and the last part of it; NULL if unknown. The texts stay valid for the life of the process. */
const char *gp_module_path(uint32_t number);
const char *gp_module_name(uint32_t number);

/* True if the file is the driver or a CUDA runtime, which calls on behalf of another module. */
bool gp_module_is_cuda(uint32_t number);
