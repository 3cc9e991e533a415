/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "stat_schema.h"

#include <stdio.h>
#include <string.h>

#include "common/ctl_proto.h"

/*
 * The changes from version 1 to 2, after which a quantity has one name, and a name means one quantity. Only memory of
 * the device that no process has taken is free. Bytes that a round made available are gained; those that went to
 * another process are yielded.
 */
static const struct change {
	const char *schema, *list; /* list: the array whose objects have the member; NULL: any object */
	const char *before, *now;
} changes[] = {
	{"status", NULL, "free_bytes", "unused_bytes"},
	{"status", NULL, "n_free_blocks", "n_cached_blocks"},
	{"status", "retries", "yielded_bytes", "gained_bytes"},
	{"list", NULL, "free_bytes", "unused_bytes"},
	{"map", NULL, "largest_free_bytes", "largest_unused_bytes"},
	{"limit", NULL, "total_bytes", "counted_bytes"},
	{"region", NULL, "n_free_blocks", "n_cached_blocks"},
	{"oom", NULL, "asked_bytes", "requested_bytes"},
	{"oom", NULL, "charged_bytes", "counted_bytes"},
	{"oom", NULL, "free_bytes", "unused_bytes"},
	{"oom", NULL, "largest_free_bytes", "largest_unused_bytes"},
	{"oom", NULL, "n_pinned_segments", "n_partly_used_segments"},
	{"oom", NULL, "pinned_free_bytes", "partly_used_unused_bytes"},
	{"oom", "rounds", "yielded_bytes", "gained_bytes"},
};
enum { N_CHANGES = sizeof(changes) / sizeof(changes[0]) };

enum { DEPTH = 6, LIST_VERSION = 2 }; /* no renamed member is deeper: answer, list, device, list, round */

static const char list_suffix[] = "-list";

/* Copies the name without "-list". Returns true if it had that end. */
static bool strip(char plain[static GP_CTL_SCHEMA_MAX], const char *name)
{
	size_t length = strlen(name), end = sizeof(list_suffix) - 1;
	bool is_list = length > end && strcmp(name + length - end, list_suffix) == 0;

	snprintf(plain, GP_CTL_SCHEMA_MAX, "%.*s", (int)(is_list ? length - end : length), name);
	return is_list;
}

unsigned stat_schema_version(const char *name)
{
	char plain[GP_CTL_SCHEMA_MAX];
	enum gp_ctl_command command;

	strip(plain, name);
	if (strcmp(plain, "list") == 0)
		return LIST_VERSION;
	command = gp_ctl_command_find(plain);
	return command < GP_CTL_N_COMMANDS ? gp_ctl_commands[command].version : 1;
}

/* A member that has the new name already is left as it is: the answer is not one that a process can have given. */
static void rename_members(json_t *object, const char *schema, const char *list)
{
	for (size_t i = 0; i < N_CHANGES; i++) {
		const struct change *change = &changes[i];
		json_t *value;

		if (strcmp(change->schema, schema) != 0 || (change->list && strcmp(change->list, list) != 0))
			continue;
		value = json_object_get(object, change->before);
		if (!value || json_object_get(object, change->now))
			continue;
		json_object_set(object, change->now, value);
		json_object_del(object, change->before);
	}
}

/* list: the name of the array around the value, or "". */
static void update(json_t *value, const char *schema, const char *list, int depth)
{
	const char *key;
	json_t *item;
	size_t i;

	if (depth == DEPTH)
		return;
	if (json_is_array(value)) {
		json_array_foreach(value, i, item)
			update(item, schema, list, depth + 1);
	} else if (json_is_object(value)) {
		rename_members(value, schema, list);
		json_object_foreach(value, key, item)
			update(item, schema, json_is_array(item) ? key : "", depth + 1);
	}
}

static void set_version(json_t *reply, const char *name)
{
	char schema[GP_CTL_SCHEMA_MAX + 24];

	snprintf(schema, sizeof(schema), "gpupool.%.31s/%u", name, stat_schema_version(name));
	json_object_set_new(reply, "schema", json_string(schema));
}

void stat_schema_update(json_t *reply, const char *name)
{
	json_t *processes = json_object_get(reply, "processes"), *process;
	char plain[GP_CTL_SCHEMA_MAX];
	size_t i;

	set_version(reply, name);
	if (!strip(plain, name)) {
		update(reply, plain, "", 0);
		return;
	}
	json_array_foreach(processes, i, process) {
		update(process, plain, "", 0);
		if (json_is_object(process))
			set_version(process, plain);
	}
}
