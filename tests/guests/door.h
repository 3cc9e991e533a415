/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* The state at one end of loader.S, with the names of dlsym's arguments. door.S uses the same layout. */

#include <stdint.h>

#define DOOR_ANSWER ((void *)0x7357) /* the result of door_real */

struct door {
	uintptr_t stack_pointer, return_address, handle, name;
	uintptr_t kept[11]; /* registers that a callee preserves; unused elements at the end are 0 */
};

__attribute__((visibility("hidden"))) extern struct door door_wanted, door_seen, door_kept;

void *door_call(void *handle, const char *name);
void *door_real(void *handle, const char *name);

/*
 * loader.S itself is linked to these. lookup.c and driver_table.c define them in the library, and the test does so
 * here.
 */
struct gp_route {
	uintptr_t is_handled;
	void *address;
};

typedef void *door_fn(void *handle, const char *name);

struct gp_route gp_dlsym_route(void *handle, const char *name);
struct gp_route gp_dlopen_route(void *handle, const char *name);
__attribute__((visibility("hidden"))) extern door_fn *gp_real_dlsym, *gp_real_dlopen;

/* The function of loader.S that door_call calls. */
__attribute__((visibility("hidden"))) extern door_fn *door_tried;
