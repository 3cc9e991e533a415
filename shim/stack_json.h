/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Stacks as they go to others: each frame is [OBJECT, ADDRESS], the number of a file in a list that follows and the
 * address as that file has it, so that whoever has the same file can tell what is there. -1 stands for no file; and
 * with -2 it is the number of a place in a second list.
 */

#include "json.h"
#include "object.h"

struct gp_stack_json {
	struct gp_object *objects;
	int *numbers; /* in the list; -1: not in it */
	size_t n_objects;
	int n_used;
	uint32_t *place_numbers; /* likewise, from 1; 0: not in it */
	uintptr_t *places;	 /* those that are */
	uint32_t n_places;
	size_t owed_bytes; /* that gp_stack_json_objects is going to take, at the most */
};

/* Looks at what is loaded. False without host memory. */
bool gp_stack_json_init(struct gp_stack_json *stacks);
void gp_stack_json_deinit(struct gp_stack_json *stacks);

/* The frames of a site as an array under that key; null if there is none, or no room for it. */
void gp_stack_json_site(struct gp_json *out, struct gp_stack_json *stacks, const char *key, uint32_t site);

/* What is left for others. A site takes no more than GP_STACK_JSON_BYTES of it, and what its files and places take. */
size_t gp_stack_json_room(const struct gp_json *out, const struct gp_stack_json *stacks);

/* "objects" and "places" of all frames so far. */
void gp_stack_json_objects(struct gp_json *out, const struct gp_stack_json *stacks);

/* No more than that for one site. */
enum { GP_STACK_JSON_BYTES = 64 * 24 + 64 };
