/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "scheduler_limits.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum form { FORM_MIB, FORM_SIZE, FORM_LIST };

static const struct row {
	const char *variable;
	enum form form;
	bool is_for_each;
} rows[] = {
#define SCHEDULER_LIMIT(variable, form, is_for_each, who) {variable, FORM_##form, is_for_each},
#include "scheduler_limits.def"
};

/* Less than this cannot be the limit of a program that uses CUDA: the number has another unit than it should. */
enum { LEAST_BYTES = 1 << 20 };

static int refuse(struct gp_text_error *error, const char *why, const char *next)
{
	*error = (struct gp_text_error){.why = why, .next = next};
	return -EINVAL;
}

/* Reads "NUMBER", in MiB. */
static int parse_mib(const char *text, struct gp_limit *ret, struct gp_text_error *error)
{
	static const char next[] = "use a number of MiB";
	char size[GP_SIZE_TEXT_MAX];
	size_t length = strspn(text, "0123456789");

	if (!length || text[length] || length + sizeof("MiB") > sizeof(size))
		return refuse(error, "is not a number", next);
	snprintf(size, sizeof(size), "%sMiB", text);
	*ret = (struct gp_limit){.kind = GP_LIMIT_BYTES};
	return gp_size_parse(size, &ret->bytes, error);
}

static int parse_size(const char *text, struct gp_limit *ret, struct gp_text_error *error)
{
	*ret = (struct gp_limit){.kind = GP_LIMIT_BYTES};
	if (gp_size_parse(text, &ret->bytes, error) < 0)
		return -EINVAL;
	if (!ret->bytes)
		ret->kind = GP_LIMIT_NONE;
	return 0;
}

static bool is_plausible(const struct gp_limit *limit)
{
	return limit->kind == GP_LIMIT_NONE || (limit->kind == GP_LIMIT_BYTES && limit->bytes >= LEAST_BYTES);
}

/* Reads a value. device: the one that it is for; -1: all, or those that the value names. */
static int parse(enum form form, const char *text, int device, struct gp_limit_list *list, struct gp_text_error *error)
{
	struct gp_limit one;
	int r;

	if (form == FORM_LIST) {
		if (gp_limit_list_parse(text, list, error) < 0)
			return -EINVAL;
		for (int i = 0; i < GP_LIMIT_DEVICES_MAX; i++)
			if (!is_plausible(gp_limit_list_find(list, i)))
				return refuse(error, "is not a list of sizes from 1 MiB up", "as in 0=1G,1=512M");
		return 0;
	}
	r = form == FORM_MIB ? parse_mib(text, &one, error) : parse_size(text, &one, error);
	if (r < 0)
		return r;
	if (!is_plausible(&one))
		return refuse(error, "is less than 1 MiB", "set GPUPOOL_LIMIT if it is not a limit of GPU memory");
	if (device < 0) {
		list->rest = one;
	} else {
		list->named |= UINT64_C(1) << device;
		list->device[device] = one;
	}
	return 0;
}

/* Returns the number behind "VARIABLE_", or -1 if the name is not of that form. */
static int device_of(const struct row *row, const char *name, size_t length)
{
	size_t start = strlen(row->variable);
	int device = 0;

	if (!row->is_for_each || length < start + 2 || length > start + 3 || name[start] != '_')
		return -1;
	for (size_t i = start + 1; i < length; i++) {
		if (name[i] < '0' || name[i] > '9')
			return -1;
		device = 10 * device + (name[i] - '0');
	}
	return device < GP_LIMIT_DEVICES_MAX ? device : -1;
}

static const struct gp_limit *smaller(const struct gp_limit *a, const struct gp_limit *b)
{
	return gp_limit_bytes(a, UINT64_MAX) <= gp_limit_bytes(b, UINT64_MAX) ? a : b;
}

/* Changes the list to the smaller limit of each device. */
static void tighten(struct gp_limit_list *list, const struct gp_limit_list *other)
{
	struct gp_limit_list both = {.named = list->named | other->named};

	for (int i = 0; i < GP_LIMIT_DEVICES_MAX; i++)
		if (both.named >> i & 1)
			both.device[i] = *smaller(gp_limit_list_find(list, i), gp_limit_list_find(other, i));
	both.rest = *smaller(&list->rest, &other->rest);
	*list = both;
}

/* Reads all variables of a row. Returns whether there are any, or -EINVAL. */
static int read_row(const struct row *row, char *const *environment, struct gp_scheduler_limits *ret)
{
	struct gp_limit_list list = {.rest = {.kind = GP_LIMIT_NONE}};
	bool is_set = false, is_rest_set = false;

	for (char *const *entry = environment; entry && *entry; entry++) {
		size_t length = strcspn(*entry, "="), start = strlen(row->variable);
		const char *value = *entry + length + 1;
		int device = -1;

		if (strncmp(*entry, row->variable, start) != 0 || !(*entry)[length] || !*value)
			continue;
		if (length > start && (device = device_of(row, *entry, length)) < 0)
			continue;
		/* If a variable is set twice the first entry counts, as for getenv(). */
		if (device < 0 ? is_rest_set : list.named >> device & 1)
			continue;
		if (parse(row->form, value, device, &list, &ret->error) < 0) {
			snprintf(ret->bad_variable, sizeof(ret->bad_variable), "%.*s", (int)length, *entry);
			ret->bad_value = value;
			return -EINVAL;
		}
		is_rest_set |= device < 0;
		is_set = true;
	}
	if (is_set)
		tighten(&ret->limit, &list);
	return is_set;
}

/* Writes the list as LIMITS. Returns false if it is too long. */
static bool write_text(const struct gp_limit_list *list, char *text, size_t size)
{
	char amount[GP_SIZE_TEXT_MAX];
	size_t length = 0;

	for (int i = 0; i <= GP_LIMIT_DEVICES_MAX && length < size; i++) {
		const struct gp_limit *limit = i < GP_LIMIT_DEVICES_MAX ? &list->device[i] : &list->rest;
		if (i < GP_LIMIT_DEVICES_MAX && !(list->named >> i & 1))
			continue;
		snprintf(amount, sizeof(amount), "none");
		if (limit->kind == GP_LIMIT_BYTES)
			gp_size_format(limit->bytes, amount);
		if (i < GP_LIMIT_DEVICES_MAX)
			length += (size_t)snprintf(text + length, size - length, "%d=%s,", i, amount);
		else if (list->named)
			length += (size_t)snprintf(text + length, size - length, "*=%s", amount);
		else
			length += (size_t)snprintf(text + length, size - length, "%s", amount);
	}
	return length < size;
}

int gp_scheduler_limits_read(char *const *environment, struct gp_scheduler_limits *ret)
{
	size_t length = 0;

	*ret = (struct gp_scheduler_limits){.limit.rest = {.kind = GP_LIMIT_NONE}};
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		int r = read_row(&rows[i], environment, ret);
		if (r < 0)
			return r;
		if (r)
			length += (size_t)snprintf(ret->variables + length, sizeof(ret->variables) - length, "%s%s",
				length ? " " : "", rows[i].variable);
	}
	if (!write_text(&ret->limit, ret->text, sizeof(ret->text))) {
		strcpy(ret->bad_variable, "CUDA_DEVICE_MEMORY_LIMIT");
		ret->bad_value = "";
		return refuse(&ret->error, "names too many devices", "set GPUPOOL_LIMIT");
	}
	return 0;
}
