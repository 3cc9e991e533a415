/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "stack_json.h"

#include <stdio.h>
#include <stdlib.h>

#include "call_site.h"
#include "location.h"
#include "pool/base.h"

enum { OBJECTS_MAX = 4096, SITE_ROOM_BYTES = 64 << 10 };

bool gp_stack_json_init(struct gp_stack_json *stacks)
{
	*stacks = (struct gp_stack_json){
		.objects = malloc(OBJECTS_MAX * sizeof(*stacks->objects)),
		.numbers = malloc(OBJECTS_MAX * sizeof(*stacks->numbers)),
		.location_numbers = calloc(GP_LOCATIONS_MAX + 1, sizeof(*stacks->location_numbers)),
		.locations = calloc(GP_LOCATIONS_MAX + 1, sizeof(*stacks->locations)),
	};
	if (!stacks->objects || !stacks->numbers || !stacks->location_numbers || !stacks->locations) {
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
	free(stacks->location_numbers);
	free(stacks->locations);
}

static void write_pair(struct gp_json *out, int64_t first, uint64_t second)
{
	gp_json_array_begin(out, NULL);
	gp_json_i64(out, NULL, first);
	gp_json_u64(out, NULL, second);
	gp_json_array_end(out);
}

/* Returns an upper bound for a string member with its key. Each character takes at most six bytes, as in \uXXXX. */
static size_t member_bytes_max(const char *text)
{
	size_t n = 16;

	for (; *text; text++)
		n += *text >= ' ' && *text != '"' && *text != '\\' ? 1 : 6;
	return n;
}

static size_t location_bytes_max(uintptr_t location)
{
	struct gp_location_info info;

	gp_location_info(location, &info);
	return member_bytes_max(info.name) + member_bytes_max(info.file) + 32;
}

static size_t object_bytes_max(const struct gp_object *object)
{
	return member_bytes_max(object->path) + 2 * GP_OBJECT_ID_MAX + 64;
}

static void write_location(struct gp_json *out, struct gp_stack_json *stacks, uintptr_t location)
{
	uint32_t *number = &stacks->location_numbers[gp_location_number(location)];

	if (!*number) {
		stacks->locations[stacks->n_locations++] = location;
		*number = stacks->n_locations;
		stacks->lists_bytes_max += location_bytes_max(location);
	}
	write_pair(out, -2, *number - 1);
}

static void write_frame(struct gp_json *out, struct gp_stack_json *stacks, uintptr_t pc)
{
	/* pc - 1: if a call is the last instruction of an object, its return address is outside the object. */
	const struct gp_object *object = gp_objects_find(stacks->objects, stacks->n_objects, pc - 1);
	int *number = object ? &stacks->numbers[object - stacks->objects] : NULL;

	if (number && *number < 0) {
		*number = stacks->n_used++;
		stacks->lists_bytes_max += object_bytes_max(object);
	}
	write_pair(out, number ? *number : -1, object ? pc - object->base : pc);
}

size_t gp_stack_json_room(const struct gp_json *out, const struct gp_stack_json *stacks)
{
	size_t room = gp_json_room(out);

	return room - gp_min(room, stacks->lists_bytes_max);
}

void gp_stack_json_site(struct gp_json *out, struct gp_stack_json *stacks, const char *key, uint32_t site)
{
	struct gp_site_info info;

	if (!site || gp_stack_json_room(out, stacks) < SITE_ROOM_BYTES) {
		gp_json_null(out, key);
		return;
	}
	gp_site_info(site, &info);
	gp_json_array_begin(out, key);
	for (unsigned i = 0; i < info.n_frames; i++)
		if (gp_location_is(info.frames[i]))
			write_location(out, stacks, info.frames[i]);
		else
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
	gp_json_array_begin(out, "places");
	for (uint32_t i = 0; i < stacks->n_locations; i++) {
		struct gp_location_info info;

		gp_location_info(stacks->locations[i], &info);
		gp_json_object_begin(out, NULL);
		gp_json_string(out, "function", info.name);
		gp_json_string(out, "file", info.file);
		if (info.line)
			gp_json_u64(out, "line", info.line);
		else
			gp_json_null(out, "line");
		gp_json_object_end(out);
	}
	gp_json_array_end(out);
}
