/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* The objects that are loaded in the process: the program and its libraries. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { GP_OBJECT_PATH_MAX = 512, GP_OBJECT_ID_MAX = 32 };

struct gp_object {
	uintptr_t start, end; /* of the object's mapped segments */
	uintptr_t base;       /* load address: an address minus the base is the address in the file */
	bool is_program;
	unsigned build_id_bytes; /* 0: the object has no build id, or it was not read (gp_object_find) */
	uint8_t build_id[GP_OBJECT_ID_MAX];
	char path[GP_OBJECT_PATH_MAX];
};

/*
 * Find the object that contains the address; false if there is none. Only gp_object_identify reads the build id. Both
 * take a lock of the loader.
 */
bool gp_object_find(uintptr_t address, struct gp_object *ret);
bool gp_object_identify(uintptr_t address, struct gp_object *ret);

/* Lists the loaded objects, at most max, in address order. Returns their number. */
size_t gp_objects_list(struct gp_object *list, size_t max);

/* Returns the object of the list that contains the address, or NULL. */
const struct gp_object *gp_objects_find(const struct gp_object *list, size_t n, uintptr_t address);

/* Returns the number of objects that the process has unloaded so far. Takes a lock of the loader. */
unsigned long long gp_object_unloads(void);

/* Returns the last component of the object's path. */
const char *gp_object_name(const struct gp_object *object);

/* True if the file name is that of the CUDA driver or of a shared CUDA runtime. */
bool gp_object_is_cuda(const char *name);
