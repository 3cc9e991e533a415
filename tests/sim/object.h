/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* Objects, and the handles that name them. */

#include <stddef.h>
#include <stdint.h>

/* The type of the object behind a handle. Objects are never unmapped, so that a stale handle can be recognised. */
enum sim_magic {
	SIM_DEAD = 0,
	SIM_CTX = 0x43545831,
	SIM_STREAM = 0x53545231,
	SIM_EVENT = 0x45564e31,
	SIM_GRAPH = 0x47524831,
	SIM_NODE = 0x4e4f4431,
	SIM_EXEC = 0x47455831,
	SIM_MODULE = 0x4d4f4431,
	SIM_FUNCTION = 0x46554e31,
	SIM_ARRAY = 0x41525231,
	SIM_PHYSICAL = 0x50485931,
	SIM_GREEN = 0x47524e31,
	SIM_GREEN_CTX = 0x47435831, /* the CUcontext of a green context */
	SIM_RESOURCES = 0x52534331,
	SIM_USER = 0x55535231, /* a user object */
};
struct sim_object {
	uint32_t magic;
	struct sim_object *next_free;
};
void *sim_object_new(enum sim_magic magic, size_t size); /* zeroed, except for the magic */
void sim_object_free(void *object);
void *sim_object_of(const void *handle, enum sim_magic magic); /* NULL if the handle has another type */
