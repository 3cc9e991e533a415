/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "replay_stacks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pool/base.h"
#include "tools/text/stat_say.h"

/* The rest of a body. Once a read has failed, is_bad is set, and all reads return 0 or an empty text. */
struct cursor {
	const uint8_t *at, *end;
	bool is_bad;
};

struct text {
	const char *bytes;
	size_t length;
};

static uint64_t take_number(struct cursor *c)
{
	uint64_t value = 0;

	for (unsigned i = 0; i < GP_RECORD_VARINT_MAX && c->at < c->end; i++) {
		uint8_t byte = *c->at++;

		value |= (uint64_t)(byte & 127) << (7 * i);
		if (byte < 128)
			return value;
	}
	c->is_bad = true;
	return 0;
}

/* Takes a text. A name of a file or a function has no zero byte; a build id may have some. */
static struct text take_bytes(struct cursor *c)
{
	uint64_t length = take_number(c);
	struct text text = {(const char *)c->at, 0};

	if (c->is_bad || length > (uint64_t)(c->end - c->at)) {
		c->is_bad = true;
		return text;
	}
	text.length = (size_t)length;
	c->at += length;
	return text;
}

static struct text take_name(struct cursor *c)
{
	struct text text = take_bytes(c);

	if (memchr(text.bytes, '\0', text.length))
		c->is_bad = true;
	return text;
}

/* Returns the entries of a list whose highest number is n: a power of two, so that a growing list is rarely moved. */
static size_t room_of(uint64_t n)
{
	size_t room = 1;

	while (n && room < n + 1)
		room *= 2;
	return n ? room : 0;
}

/* Makes room for the number in a list, with zeros. Returns the list. */
static void *grow(void *list, uint32_t *n, size_t entry_bytes, uint64_t number)
{
	size_t old = room_of(*n) * entry_bytes, wanted = room_of(number) * entry_bytes;

	if (wanted > old) {
		list = stat_alloc(realloc(list, wanted));
		memset((char *)list + old, 0, wanted - old);
	}
	*n = (uint32_t)gp_max(*n, number);
	return list;
}

static bool is_number(uint64_t number, uint64_t number_max)
{
	return number && number <= number_max;
}

static char *copy_name(struct replay_stacks *stacks, struct text text)
{
	stacks->n_name_bytes += text.length + 1;
	return stat_alloc(strndup(text.bytes, text.length));
}

static bool has_room(const struct replay_stacks *stacks, size_t length)
{
	return stacks->n_name_bytes + length <= REPLAY_NAMES_MAX;
}

static bool add_object(struct replay_stacks *stacks, struct cursor *c)
{
	uint64_t number = take_number(c);
	struct text path = take_name(c), id = take_bytes(c);
	struct replay_object *object;

	if (c->is_bad || id.length > REPLAY_BUILD_ID_MAX || !has_room(stacks, path.length + 1) ||
		!is_number(number, GP_RECORD_OBJECTS_MAX))
		return false;
	stacks->objects = grow(stacks->objects, &stacks->n_objects, sizeof(*object), number);
	object = &stacks->objects[number];
	if (object->path)
		return false;
	object->path = copy_name(stacks, path);
	for (size_t i = 0; i < id.length; i++)
		snprintf(object->build_id + 2 * i, 3, "%02x", (uint8_t)id.bytes[i]);
	return true;
}

static bool add_place(struct replay_stacks *stacks, struct cursor *c)
{
	uint64_t number = take_number(c);
	struct text function = take_name(c), file = take_name(c);
	uint64_t line = c->at < c->end ? take_number(c) : 0;
	struct replay_place *place;

	if (c->is_bad || !has_room(stacks, function.length + file.length + 2) ||
		!is_number(number, GP_RECORD_PLACES_MAX))
		return false;
	stacks->places = grow(stacks->places, &stacks->n_places, sizeof(*place), number);
	place = &stacks->places[number];
	if (place->function)
		return false;
	place->function = copy_name(stacks, function);
	place->file = copy_name(stacks, file);
	place->line = line;
	return true;
}

static bool is_defined(const struct replay_stacks *stacks, const struct replay_frame *frame)
{
	if (frame->object == GP_RECORD_FRAME_PLAIN)
		return true;
	if (frame->object == GP_RECORD_FRAME_PLACE)
		return frame->address && frame->address <= stacks->n_places && stacks->places[frame->address].function;
	return frame->object > 0 && frame->object <= stacks->n_objects && stacks->objects[frame->object].path;
}

static bool add_stack(struct replay_stacks *stacks, struct cursor *c)
{
	struct replay_frame frames[GP_RECORD_STACK_FRAMES_MAX];
	uint64_t number = take_number(c);
	struct replay_stack *stack;
	unsigned n = 0;

	for (; c->at < c->end && n < GP_RECORD_STACK_FRAMES_MAX; n++) {
		frames[n].object = (int64_t)gp_record_unfold(take_number(c));
		frames[n].address = take_number(c);
		if (!is_defined(stacks, &frames[n]))
			return false;
	}
	if (c->is_bad || !n || c->at < c->end || !is_number(number, GP_RECORD_STACKS_MAX))
		return false;
	stacks->stacks = grow(stacks->stacks, &stacks->n_stacks, sizeof(*stack), number);
	stack = &stacks->stacks[number];
	if (stack->frames)
		return false;
	stack->frames = stat_alloc(malloc(n * sizeof(*frames)));
	memcpy(stack->frames, frames, n * sizeof(*frames));
	stack->n_frames = n;
	return true;
}

bool replay_stacks_add(struct replay_stacks *stacks, enum gp_record_kind kind, const uint8_t *body, size_t length)
{
	struct cursor cursor = {body, body + length, false};

	switch (kind) {
	case GP_RECORD_OBJECT:
		return add_object(stacks, &cursor);
	case GP_RECORD_PLACE:
		return add_place(stacks, &cursor);
	case GP_RECORD_STACK:
		return add_stack(stacks, &cursor);
	default:
		return true;
	}
}

void replay_stacks_deinit(struct replay_stacks *stacks)
{
	for (uint32_t i = 1; i <= stacks->n_objects; i++)
		free(stacks->objects[i].path);
	for (uint32_t i = 1; i <= stacks->n_places; i++) {
		free(stacks->places[i].function);
		free(stacks->places[i].file);
	}
	for (uint32_t i = 1; i <= stacks->n_stacks; i++)
		free(stacks->stacks[i].frames);
	free(stacks->objects);
	free(stacks->places);
	free(stacks->stacks);
	*stacks = (struct replay_stacks){0};
}

const struct replay_stack *replay_stack_find(const struct replay_stacks *stacks, uint64_t number)
{
	if (!number || number > stacks->n_stacks || !stacks->stacks[number].frames)
		return NULL;
	return &stacks->stacks[number];
}

bool replay_command_parse(const uint8_t *body, size_t length, const char **ret_words, size_t *ret_length)
{
	struct cursor c = {body, body + length, false};
	bool is_cut = take_number(&c) != 0;
	struct text words = take_bytes(&c);

	*ret_words = words.bytes;
	*ret_length = is_cut || !words.length || words.bytes[words.length - 1] ? 0 : words.length;
	return !c.is_bad && words.length <= GP_RECORD_COMMAND_MAX;
}
