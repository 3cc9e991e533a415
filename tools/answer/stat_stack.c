/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "stat_stack.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/ask/stat_reply.h"
#include "stat_symbols.h"

/* Once there are NAMES_MAX bytes of names, which no program has, further frames are named by their addresses. */
enum { FRAME_MAX = 1 << 16, NAMES_MAX = 32 << 20, FRAMES_MAX = 64, KEY_MAX = 48, KNOWN_MAX = 300, LOCATION = -2 };

struct stat_stacks {
	const json_t *reply, *objects, *known;
	pid_t pid;
	struct stat_symbols *symbols;
	json_t *names;  /* found so far, by "OBJECT+ADDRESS" */
	size_t n_bytes; /* of the names */
};

struct stat_stacks *stat_stacks_new(const json_t *reply, pid_t pid, uid_t uid)
{
	struct stat_stacks *stacks = stat_alloc(calloc(1, sizeof(*stacks)));

	stacks->reply = reply;
	stacks->objects = json_object_get(reply, "objects");
	stacks->known = json_object_get(reply, "symbols");
	stacks->symbols = stat_symbols_new(stacks->objects, pid, uid);
	stacks->pid = pid;
	stacks->names = stat_alloc(json_object());
	return stacks;
}

void stat_stacks_free(struct stat_stacks *stacks)
{
	const char *problem = stat_symbols_problem(stacks->symbols);
	char prefix[32] = "";

	if (stacks->pid)
		snprintf(prefix, sizeof(prefix), "pid %d: ", (int)stacks->pid);
	if (problem)
		stat_error("look up the files and addresses that are shown with addr2line(1).",
			"%ssome names of functions are missing: %s.", prefix, problem);
	stat_stacks_free_quietly(stacks);
}

void stat_stacks_free_quietly(struct stat_stacks *stacks)
{
	stat_symbols_free(stacks->symbols);
	json_decref(stacks->names);
	free(stacks);
}

/* Reads a frame, [OBJECT, ADDRESS]. Returns false if it is anything else. */
static bool read_frame(const json_t *frame, int64_t *object, uint64_t *address)
{
	const json_t *first = json_array_get(frame, 0), *second = json_array_get(frame, 1);

	if (!json_is_integer(first) || !json_is_integer(second) || json_integer_value(second) < 0)
		return false;
	*object = json_integer_value(first);
	*address = (uint64_t)json_integer_value(second);
	return true;
}

/* Returns the last part of an object's path, or NULL. */
static const char *name_of_object(const struct stat_stacks *stacks, int64_t object)
{
	const json_t *entry = object >= 0 ? json_array_get(stacks->objects, (size_t)object) : NULL;
	const char *path = json_string_value(json_object_get(entry, "path"));
	const char *slash = path ? strrchr(path, '/') : NULL;

	return slash ? slash + 1 : path;
}

static void name_by_address(
	const struct stat_stacks *stacks, int64_t object, uint64_t address, char text[static FRAME_MAX])
{
	const char *name = name_of_object(stacks, object);

	if (name)
		snprintf(text, FRAME_MAX, "%.200s+0x%" PRIx64, name, address);
	else
		snprintf(text, FRAME_MAX, "0x%" PRIx64, address);
}

/* Names a line of an interpreted program. */
static void name_location(const struct stat_stacks *stacks, uint64_t number, char text[static FRAME_MAX])
{
	const json_t *location = json_array_get(json_object_get(stacks->reply, "places"), number);
	const char *file = stat_reply_text(location, "file"), *slash = strrchr(file, '/');

	snprintf(text, FRAME_MAX, "%.*s (%.*s:%" PRIu64 ")", KNOWN_MAX / 2, stat_reply_text(location, "function"),
		KNOWN_MAX / 2, slash ? slash + 1 : file, stat_reply_u64_or_0(location, "line"));
}

/* Names a frame by the files or, failing that, by the answer. Returns false if neither has a name. */
static bool name_by_file(
	struct stat_stacks *stacks, int64_t object, uint64_t address, const char *key, char text[static FRAME_MAX])
{
	const char *known;

	if (stacks->n_bytes > NAMES_MAX)
		return false;
	/* A return address may belong to the next function already; the call lies before it. */
	if (object >= 0 && address && stat_symbols_at(stacks->symbols, (size_t)object, address - 1, text, FRAME_MAX))
		return true;
	known = json_string_value(json_object_get(stacks->known, key));
	if (known)
		snprintf(text, FRAME_MAX, "%s", known);
	return known != NULL;
}

static const char *name_of_frame(struct stat_stacks *stacks, int64_t object, uint64_t address)
{
	char key[KEY_MAX], text[FRAME_MAX], clean[FRAME_MAX];
	const char *known;

	snprintf(key, sizeof(key), "%" PRId64 "+%" PRIu64, object, address);
	known = json_string_value(json_object_get(stacks->names, key));
	if (known)
		return known;
	if (object == LOCATION)
		name_location(stacks, address, text);
	else if (!name_by_file(stacks, object, address, key, text))
		name_by_address(stacks, object, address, text);
	stat_clean(clean, sizeof(clean), text);
	stacks->n_bytes += strlen(clean);
	json_object_set_new(stacks->names, key, json_string(clean));
	known = json_string_value(json_object_get(stacks->names, key));
	return known ? known : "?";
}

/* Returns true for functions that start a program or a thread: they end every stack, and say nothing about it. */
static bool is_start_function(const char *name)
{
	static const char *const names[] = {"__libc_start_", "start_thread (", "clone3 ("};

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
		if (strncmp(name, names[i], strlen(names[i])) == 0)
			return true;
	return false;
}

char *stat_stacks_full_text(struct stat_stacks *stacks, const json_t *frames)
{
	size_t length = 0, i;
	char *text = NULL;
	FILE *out = stat_alloc(open_memstream(&text, &length));
	const json_t *frame;

	json_array_foreach(frames, i, frame) {
		const char *name;
		int64_t object;
		uint64_t address;

		if (i == FRAMES_MAX || !read_frame(frame, &object, &address))
			break;
		name = name_of_frame(stacks, object, address);
		if (i && is_start_function(name))
			break;
		fprintf(out, "%s%s", i ? STAT_FRAMES_BETWEEN : "", name);
	}
	if (!i)
		fputc('-', out);
	if (fclose(out) != 0)
		stat_alloc(NULL);
	return stat_alloc(text);
}

char *stat_stacks_text(struct stat_stacks *stacks, const json_t *frames)
{
	char *text = stat_stacks_full_text(stacks, frames);

	stat_name_shorten(text);
	return text;
}

const char *stat_stacks_library(struct stat_stacks *stacks, const json_t *frames)
{
	const char *name = NULL;
	int64_t object;
	uint64_t address;

	if (read_frame(json_array_get(frames, 0), &object, &address))
		name = name_of_object(stacks, object);
	return name ? name : "-";
}

/* Finds the names of all frames in a value, at any depth. */
static void find_frames(struct stat_stacks *stacks, json_t *value)
{
	json_t *item;
	const char *key;
	int64_t object;
	uint64_t address;
	size_t i;

	if (json_is_object(value)) {
		json_object_foreach(value, key, item)
			find_frames(stacks, item);
	} else if (json_array_size(value) == 2 && read_frame(value, &object, &address)) {
		(void)name_of_frame(stacks, object, address);
	} else {
		json_array_foreach(value, i, item)
			find_frames(stacks, item);
	}
}

void stat_stacks_complete(const struct stat_process *process)
{
	struct stat_stacks *stacks = stat_stacks_new(process->reply, process->pid, process->uid);

	find_frames(stacks, process->reply);
	json_object_set(process->reply, "symbols", stacks->names);
	stat_stacks_free(stacks);
}

void stat_stacks_print(struct stat_stacks *stacks, const char *title, const json_t *frames)
{
	char *text;

	if (!json_array_size(frames))
		return;
	text = stat_stacks_text(stacks, frames);
	printf("  %s: %s\n", title, text);
	free(text);
}
