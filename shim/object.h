/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* The files whose code is in the process: the program, its libraries. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { GP_OBJECT_PATH_MAX = 512, GP_OBJECT_ID_MAX = 32 };

struct gp_object {
	uintptr_t start, end; /* of what is mapped */
	uintptr_t base;       /* what to take off an address to get the file's own */
	bool is_program;
	unsigned build_id_bytes; /* 0: it has none */
	uint8_t build_id[GP_OBJECT_ID_MAX];
	char path[GP_OBJECT_PATH_MAX];
};

/* The one with that address in it; false if there is none. Asks the loader, which takes one of its locks for it. */
bool gp_object_find(uintptr_t address, struct gp_object *ret);

/* At most so many, by address. How many they are. */
size_t gp_objects_list(struct gp_object *list, size_t max);

/* Of a list: the one with the address, or NULL. */
const struct gp_object *gp_objects_find(const struct gp_object *list, size_t n, uintptr_t address);

/* The last part of its path. */
const char *gp_object_name(const struct gp_object *object);

/* Whether a file of that name is CUDA's driver, or its runtime as a library of its own. */
bool gp_object_is_cuda(const char *name);
