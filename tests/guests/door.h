/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* What is seen at one of the ends of loader.S, with the names of dlsym's arguments. The layout is door.S's as well. */

#include <stdint.h>

#define DOOR_ANSWER ((void *)0x7357) /* of door_real */

struct door {
	uintptr_t stack_pointer, return_address, handle, name;
	uintptr_t kept[11]; /* registers that a callee keeps; the last are 0 where there are fewer */
};

__attribute__((visibility("hidden"))) extern struct door door_wanted, door_seen, door_kept;

void *door_call(void *handle, const char *name);
void *door_real(void *handle, const char *name);

/* What loader.S itself is linked to: lookup.c and real.c in the library, the test here. */
struct gp_route {
	uintptr_t is_handled;
	void *address;
};

typedef void *door_fn(void *handle, const char *name);

struct gp_route gp_dlsym_route(void *handle, const char *name);
struct gp_route gp_dlopen_route(void *handle, const char *name);
__attribute__((visibility("hidden"))) extern door_fn *gp_real_dlsym, *gp_real_dlopen;

/* Which of loader.S is called. */
__attribute__((visibility("hidden"))) extern door_fn *door_tried;
