/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "stat_reply.h"

#include <stdio.h>
#include <string.h>

#include "common/ctl_proto.h"
#include "common/size.h"
#include "stat_schema.h"

enum { MAX_DEPTH = 16 };

/* Measures the depth and the number of values of a text, before a parser builds anything. */
static void measure(const char *text, size_t length, size_t *ret_depth, size_t *ret_values)
{
	size_t depth = 0;
	bool in_string = false;

	*ret_depth = *ret_values = 0;
	for (size_t i = 0; i < length; i++) {
		char c = text[i];

		if (in_string) {
			if (c == '\\')
				i++;
			in_string = c != '"';
			continue;
		}
		in_string = c == '"';
		*ret_values += c == ',' || c == '[' || c == '{';
		if (c == '[' || c == '{')
			depth++;
		else if ((c == ']' || c == '}') && depth)
			depth--;
		if (depth > *ret_depth)
			*ret_depth = depth;
	}
}

size_t stat_reply_count(const char *text, size_t length)
{
	size_t depth, n_values;

	measure(text, length, &depth, &n_values);
	return n_values;
}

static const char *check_size(const char *text, size_t length, size_t max_values)
{
	size_t depth, n_values;

	measure(text, length, &depth, &n_values);
	if (depth > MAX_DEPTH)
		return "is nested too deeply";
	return n_values > max_values ? "has too many values" : NULL;
}

static const struct {
	const char *reason;
	enum stat_exit exit;
} reasons[] = {
	{"usage", STAT_USAGE},
	{"permission", STAT_NOT_PERMITTED},
};

static enum stat_exit read_error(const json_t *reply, char error[static STAT_ERROR_MAX])
{
	const char *reason = stat_reply_text(reply, "reason");

	snprintf(error, STAT_ERROR_MAX, "says: %s", stat_reply_text(reply, "error"));
	for (size_t i = 0; i < sizeof(reasons) / sizeof(reasons[0]); i++)
		if (!strcmp(reason, reasons[i].reason))
			return reasons[i].exit;
	return STAT_FAILED;
}

/* Returns STAT_OK if the answer has the wanted schema. An older one gets the present names. */
static enum stat_exit check_schema(json_t *reply, const char *name, char error[static STAT_ERROR_MAX])
{
	const char *schema = stat_reply_text(reply, "schema");
	char reply_name[GP_CTL_SCHEMA_MAX];
	unsigned version, newest;

	if (!gp_ctl_schema_parse(schema, reply_name, &version)) {
		snprintf(error, STAT_ERROR_MAX, "gave an answer without a schema of gpupool");
		return STAT_FAILED;
	}
	newest = stat_schema_version(reply_name);
	if (version > newest || !version) {
		snprintf(error, STAT_ERROR_MAX, "answers with %.64s; this gpupool-stat supports version %u", schema,
			newest);
		return STAT_OTHER_VERSION;
	}
	if (!strcmp(reply_name, "error"))
		return read_error(reply, error);
	if (strcmp(reply_name, name) != 0) {
		snprintf(error, STAT_ERROR_MAX, "answered with %.64s to '%s'", schema, name);
		return STAT_FAILED;
	}
	if (version < newest)
		stat_schema_update(reply, name);
	return STAT_OK;
}

json_t *stat_reply_parse(const char *text, size_t length, const char *name, size_t max_values, enum stat_exit *ret_exit,
	char error[static STAT_ERROR_MAX])
{
	const char *too_much = check_size(text, length, max_values);
	json_error_t where;
	json_t *reply;

	*ret_exit = STAT_FAILED;
	if (too_much) {
		snprintf(error, STAT_ERROR_MAX, "gave an answer that %s", too_much);
		return NULL;
	}
	reply = json_loadb(text, length, JSON_REJECT_DUPLICATES, &where);
	if (!json_is_object(reply)) {
		snprintf(error, STAT_ERROR_MAX, "gave an answer that is not a JSON object");
		json_decref(reply);
		return NULL;
	}
	*ret_exit = check_schema(reply, name, error);
	if (*ret_exit == STAT_OK)
		return reply;
	json_decref(reply);
	return NULL;
}

bool stat_reply_u64(const json_t *object, const char *key, uint64_t *ret_value)
{
	const json_t *member = json_object_get(object, key);
	bool is_number = json_is_integer(member) && json_integer_value(member) >= 0;

	*ret_value = is_number ? (uint64_t)json_integer_value(member) : 0;
	return is_number;
}

uint64_t stat_reply_u64_or_0(const json_t *object, const char *key)
{
	uint64_t value;

	stat_reply_u64(object, key, &value);
	return value;
}

const char *stat_reply_text(const json_t *object, const char *key)
{
	const char *text = json_string_value(json_object_get(object, key));

	return text ? text : "?";
}

bool stat_reply_new_device(const json_t *device, uint64_t *seen, uint64_t *ret_index)
{
	if (!stat_reply_u64(device, "index", ret_index) || *ret_index >= GP_LIMIT_DEVICES_MAX ||
		*seen >> *ret_index & 1)
		return false;
	*seen |= UINT64_C(1) << *ret_index;
	return true;
}

uint64_t stat_reply_sum(const json_t *array, const char *key)
{
	uint64_t sum = 0;
	const json_t *item;
	size_t i;

	json_array_foreach(array, i, item)
		if (__builtin_add_overflow(sum, stat_reply_u64_or_0(item, key), &sum))
			return UINT64_MAX;
	return sum;
}

json_t *stat_reply_parse_saved(const char *text, size_t length, const char *name, char error[static STAT_ERROR_MAX])
{
	char unused[STAT_ERROR_MAX], list_name[32];
	enum stat_exit ignored;
	json_t *reply = stat_reply_parse(text, length, name, STAT_VALUES_MAX, &ignored, error), *list = NULL;
	const json_t *processes;

	if (reply)
		return reply;
	snprintf(list_name, sizeof(list_name), "%s-list", name);
	list = stat_reply_parse(text, length, list_name, STAT_VALUES_MAX, &ignored, unused);
	processes = json_object_get(list, "processes");
	if (json_array_size(processes) == 1 && json_is_object(json_array_get(processes, 0)))
		reply = json_incref(json_array_get(processes, 0));
	else if (list)
		snprintf(error, STAT_ERROR_MAX, "has answers of %zu processes, not of one", json_array_size(processes));
	json_decref(list);
	return reply;
}
