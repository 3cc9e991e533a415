/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "stack_json.h"

#include <stdio.h>
#include <stdlib.h>

#include "../pool/base.h"
#include "place.h"
#include "site.h"

enum { OBJECTS_MAX = 4096, ENOUGH_BYTES = 64 << 10 };

bool gp_stack_json_init(struct gp_stack_json *stacks)
{
	*stacks = (struct gp_stack_json){
		.objects = malloc(OBJECTS_MAX * sizeof(*stacks->objects)),
		.numbers = malloc(OBJECTS_MAX * sizeof(*stacks->numbers)),
		.place_numbers = calloc(GP_PLACES_MAX + 1, sizeof(*stacks->place_numbers)),
		.places = calloc(GP_PLACES_MAX + 1, sizeof(*stacks->places)),
	};
	if (!stacks->objects || !stacks->numbers || !stacks->place_numbers || !stacks->places) {
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
	free(stacks->place_numbers);
	free(stacks->places);
}

static void write_pair(struct gp_json *out, int64_t first, uint64_t second)
{
	gp_json_array_begin(out, NULL);
	gp_json_i64(out, NULL, first);
	gp_json_u64(out, NULL, second);
	gp_json_array_end(out);
}

/* With its name, at the most: what is not plain is written as a number. */
static size_t bytes_of_member(const char *text)
{
	size_t n = 16;

	for (; *text; text++)
		n += *text >= ' ' && *text != '"' && *text != '\\' ? 1 : 6;
	return n;
}

static size_t bytes_of_place(uintptr_t place)
{
	struct gp_place_info info;

	gp_place_info(place, &info);
	return bytes_of_member(info.name) + bytes_of_member(info.file) + 32;
}

static size_t bytes_of_object(const struct gp_object *object)
{
	return bytes_of_member(object->path) + 2 * GP_OBJECT_ID_MAX + 64;
}

static void write_place(struct gp_json *out, struct gp_stack_json *stacks, uintptr_t place)
{
	uint32_t *number = &stacks->place_numbers[gp_place_number(place)];

	if (!*number) {
		stacks->places[stacks->n_places++] = place;
		*number = stacks->n_places;
		stacks->owed_bytes += bytes_of_place(place);
	}
	write_pair(out, -2, *number - 1);
}

static void write_frame(struct gp_json *out, struct gp_stack_json *stacks, uintptr_t pc)
{
	/* A call may be the last instruction of a file. */
	const struct gp_object *object = gp_objects_find(stacks->objects, stacks->n_objects, pc - 1);
	int *number = object ? &stacks->numbers[object - stacks->objects] : NULL;

	if (number && *number < 0) {
		*number = stacks->n_used++;
		stacks->owed_bytes += bytes_of_object(object);
	}
	write_pair(out, number ? *number : -1, object ? pc - object->base : pc);
}

size_t gp_stack_json_room(const struct gp_json *out, const struct gp_stack_json *stacks)
{
	size_t room = gp_json_room(out);

	return room - gp_min(room, stacks->owed_bytes);
}

void gp_stack_json_site(struct gp_json *out, struct gp_stack_json *stacks, const char *key, uint32_t site)
{
	struct gp_site_info info;

	if (!site || gp_stack_json_room(out, stacks) < ENOUGH_BYTES) {
		gp_json_null(out, key);
		return;
	}
	gp_site_info(site, &info);
	gp_json_array_begin(out, key);
	for (unsigned i = 0; i < info.n_frames; i++)
		if (gp_place_is(info.frames[i]))
			write_place(out, stacks, info.frames[i]);
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
	for (uint32_t i = 0; i < stacks->n_places; i++) {
		struct gp_place_info info;

		gp_place_info(stacks->places[i], &info);
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
