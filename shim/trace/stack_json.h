/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Stacks as JSON. Each frame is [OBJECT, ADDRESS]: an index into the list "objects" that follows, and the address
 * within that file, so that a reader with the same file can find the function. OBJECT -1 means no file. For OBJECT -2
 * ADDRESS is an index into the list "places" of code locations.
 */

#include "shim/base/json.h"
#include "object.h"

struct gp_stack_json {
	struct gp_object *objects;
	int *numbers; /* index of each object in the list "objects"; -1: not in it */
	size_t n_objects;
	int n_used;
	uint32_t *location_numbers; /* 1 + index of each code location in the list "places"; 0: not in it */
	uintptr_t *locations;       /* the code locations in that list */
	uint32_t n_locations;
	size_t lists_bytes_max; /* upper bound of what gp_stack_json_objects will write */
};

/* Lists the loaded objects. Returns false if there is no host memory. */
bool gp_stack_json_init(struct gp_stack_json *stacks);
void gp_stack_json_deinit(struct gp_stack_json *stacks);

/* Writes the frames of a call site as an array under the key; null if there is no site, or no room. */
void gp_stack_json_site(struct gp_json *out, struct gp_stack_json *stacks, const char *key, uint32_t site);

/*
 * Returns the bytes left for other members, apart from the two lists that gp_stack_json_objects will write. A call site
 * takes at most GP_STACK_JSON_BYTES, plus the bytes of its objects and code locations in the lists.
 */
size_t gp_stack_json_room(const struct gp_json *out, const struct gp_stack_json *stacks);

/* Writes the lists "objects" and "places" for all frames so far. */
void gp_stack_json_objects(struct gp_json *out, const struct gp_stack_json *stacks);

/* Upper bound for the frames of one call site. */
enum { GP_STACK_JSON_BYTES = 64 * 24 + 64 };
