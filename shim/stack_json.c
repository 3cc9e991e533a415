/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "stack_json.h"

#include <stdio.h>
#include <stdlib.h>

#include "site.h"

enum { OBJECTS_MAX = 4096 };

bool gp_stack_json_init(struct gp_stack_json *stacks)
{
	*stacks = (struct gp_stack_json){
		.objects = malloc(OBJECTS_MAX * sizeof(*stacks->objects)),
		.numbers = malloc(OBJECTS_MAX * sizeof(*stacks->numbers)),
	};
	if (!stacks->objects || !stacks->numbers) {
		gp_stack_json_deinit(stacks);
		return false;
	}
	stacks->n_objects = gp_objects_list(stacks->objects, OBJECTS_MAX);
	for (size_t i = 0; i < stacks->n_objects; i++)
		stacks->numbers[i] = -1;
	return true;
}

void gp_stack_json_deinit(struct gp_stack_json *stacks)
{
	free(stacks->objects);
	free(stacks->numbers);
}

static void write_frame(struct gp_json *out, struct gp_stack_json *stacks, uintptr_t pc)
{
	/* A call may be the last instruction of a file. */
	const struct gp_object *object = gp_objects_find(stacks->objects, stacks->n_objects, pc - 1);
	int *number = object ? &stacks->numbers[object - stacks->objects] : NULL;

	if (number && *number < 0)
		*number = stacks->n_used++;
	gp_json_array_begin(out, NULL);
	gp_json_i64(out, NULL, number ? *number : -1);
	gp_json_u64(out, NULL, object ? pc - object->base : pc);
	gp_json_array_end(out);
}

void gp_stack_json_site(struct gp_json *out, struct gp_stack_json *stacks, const char *key, uint32_t site)
{
	struct gp_site_info info;

	if (!site) {
		gp_json_null(out, key);
		return;
	}
	gp_site_info(site, &info);
	gp_json_array_begin(out, key);
	for (unsigned i = 0; i < info.n_frames; i++)
		write_frame(out, stacks, info.frames[i]);
	gp_json_array_end(out);
}

static void write_object(struct gp_json *out, const struct gp_object *object)
{
	char id[2 * GP_OBJECT_ID_MAX + 1] = "";

	for (unsigned i = 0; i < object->build_id_bytes; i++)
		snprintf(id + 2 * i, 3, "%02x", object->build_id[i]);
	gp_json_object_begin(out, NULL);
	gp_json_string(out, "path", object->path);
	gp_json_string(out, "build_id", *id ? id : NULL);
	gp_json_address(out, "base", object->base);
	gp_json_object_end(out);
}

void gp_stack_json_objects(struct gp_json *out, const struct gp_stack_json *stacks)
{
	gp_json_array_begin(out, "objects");
	for (int number = 0; number < stacks->n_used; number++)
		for (size_t i = 0; i < stacks->n_objects; i++)
			if (stacks->numbers[i] == number)
				write_object(out, &stacks->objects[i]);
	gp_json_array_end(out);
}
