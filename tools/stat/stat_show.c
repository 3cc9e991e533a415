/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Prints "blocks", "limit" and "config" as tables. */

#include "stat_show.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/text/stat_text.h"
#include "stat_commands.h"

#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))

static void print_and_free(struct stat_table *table)
{
	stat_table_print(table, stat_width());
	stat_table_free(table);
}

static const char *bytes_or(const json_t *object, const char *key, const char *unknown, char text[static STAT_TEXT_MAX])
{
	uint64_t value;

	if (!stat_reply_u64(object, key, &value))
		return unknown;
	stat_bytes(text, value);
	return text;
}

static const char *number(const json_t *object, const char *key, char text[static STAT_TEXT_MAX])
{
	uint64_t value;

	if (!stat_reply_u64(object, key, &value))
		return "-";
	snprintf(text, STAT_TEXT_MAX, "%" PRIu64, value);
	return text;
}

static uint64_t address(const json_t *block)
{
	return strtoull(stat_reply_text(block, "address"), NULL, 16);
}

/* Sorts the largest first, and equal sizes by address. */
static int compare_blocks(const void *a, const void *b)
{
	const json_t *one = *(json_t *const *)a, *other = *(json_t *const *)b;
	uint64_t size = stat_reply_u64_or_0(one, "size_bytes");
	uint64_t other_size = stat_reply_u64_or_0(other, "size_bytes");

	if (size != other_size)
		return size < other_size ? 1 : -1;
	return (address(one) > address(other)) - (address(one) < address(other));
}

static bool is_any_in_a_region(const json_t *blocks)
{
	const json_t *block;
	size_t i;

	json_array_foreach(blocks, i, block)
		if (json_is_string(json_object_get(block, "region")))
			return true;
	return false;
}

/* Adds a row. With has_regions it has a column for the region, before the last one. */
static void add_block(struct stat_table *table, const json_t *block, bool has_regions)
{
	char size[STAT_TEXT_MAX], requested[STAT_TEXT_MAX], device[STAT_TEXT_MAX];
	char serial[STAT_TEXT_MAX];
	bool has_region = json_is_string(json_object_get(block, "region"));
	const char *cells[] = {
		stat_reply_text(block, "address"),
		bytes_or(block, "size_bytes", "-", size),
		bytes_or(block, "requested_bytes", "-", requested),
		number(block, "device", device),
		stat_reply_text(block, "kind"),
		number(block, "serial", serial),
		has_region ? stat_reply_text(block, "region") : "-",
		stat_reply_text(block, "caller"),
	};

	if (!has_regions)
		cells[6] = cells[7];

	stat_table_add(table, cells);
}

void stat_blocks_show(const struct stat_process *process, const struct stat_options *options)
{
	static const char *const headings[] = {
		"<ADDRESS", ">SIZE", ">REQUESTED", ">DEVICE", "<KIND", ">SERIAL", "<CALLER"};
	static const char *const with_regions[] = {
		"<ADDRESS", ">SIZE", ">REQUESTED", ">DEVICE", "<KIND", ">SERIAL", "<REGION", "<CALLER"};
	const json_t *blocks = json_object_get(process->reply, "blocks");
	size_t n = json_array_size(blocks), n_shown;
	uint64_t n_blocks = stat_reply_u64_or_0(process->reply, "n_blocks");
	const json_t **sorted = stat_alloc(calloc(n + 1, sizeof(*sorted)));
	bool has_regions = is_any_in_a_region(blocks);
	struct stat_table *table = has_regions ? stat_table_new(with_regions, LENGTH(with_regions))
					       : stat_table_new(headings, LENGTH(headings));
	char total[STAT_TEXT_MAX];

	for (size_t i = 0; i < n; i++)
		sorted[i] = json_array_get(blocks, i);
	qsort(sorted, n, sizeof(*sorted), compare_blocks);
	n_shown = n < options->max_blocks ? n : (size_t)options->max_blocks;
	for (size_t i = 0; i < n_shown; i++)
		add_block(table, sorted[i], has_regions);
	free(sorted);
	stat_bytes(total, stat_reply_sum(blocks, "size_bytes"));
	if (n_blocks == n)
		printf("%zu block%s, %s\n", n, n == 1 ? "" : "s", total);
	else
		printf("%" PRIu64 " blocks; the answer had room for %zu of them, %s\n", n_blocks, n, total);
	if (n_shown)
		print_and_free(table);
	else
		stat_table_free(table);
	if (n_shown < n)
		printf("and %zu more\n", n - n_shown);
}

enum stat_exit stat_blocks_run(const struct stat_command *command, const struct stat_options *options)
{
	char request[64];

	/* For text, the process lists all blocks, and the largest are chosen here. For JSON, the process chooses. */
	if (!options->is_json || options->max_blocks == UINT64_MAX)
		return stat_command_read(command, options);
	snprintf(request, sizeof(request), "blocks %" PRIu64 "\n", options->max_blocks);
	return stat_command_ask(command, options, request);
}

void stat_show_callers(const json_t *callers)
{
	static const char *const headings[] = {">BYTES", ">BLOCKS", "<CALLER"};
	struct stat_table *table = stat_table_new(headings, LENGTH(headings));
	const json_t *item;
	size_t i;

	json_array_foreach(callers, i, item) {
		char bytes[STAT_TEXT_MAX], blocks[STAT_TEXT_MAX];
		const char *cells[] = {
			bytes_or(item, "bytes", "-", bytes),
			number(item, "blocks", blocks),
			stat_reply_text(item, "caller"),
		};

		stat_table_add(table, cells);
	}
	print_and_free(table);
}

static void add_limit(struct stat_table *table, const char *name, const json_t *item)
{
	char limit[STAT_TEXT_MAX], total[STAT_TEXT_MAX];
	const char *cells[] = {
		name,
		bytes_or(item, "limit_bytes", "none", limit),
		bytes_or(item, "counted_bytes", "-", total),
	};

	stat_table_add(table, cells);
}

/* Explains what a limit that is below the memory already taken means. */
static void explain_limit(const char *name, const json_t *item)
{
	uint64_t limit, total = stat_reply_u64_or_0(item, "counted_bytes");
	char text[STAT_TEXT_MAX], clean[STAT_TEXT_MAX];

	if (!stat_reply_u64(item, "limit_bytes", &limit) || total <= limit)
		return;
	stat_bytes(text, total - limit);
	stat_clean(clean, sizeof(clean), name);
	printf("%s%s: %s above the limit; the driver is asked for no more until the program frees that much\n",
		strcmp(name, "pinned") ? "device " : "", clean, text);
}

void stat_limit_show(const struct stat_process *process, const struct stat_options *options)
{
	static const char *const headings[] = {"<DEVICE", ">LIMIT", ">COUNTED"};
	struct stat_table *table = stat_table_new(headings, LENGTH(headings));
	const json_t *devices = json_object_get(process->reply, "devices"), *device;
	const json_t *pinned = json_object_get(process->reply, "pinned");
	char index[STAT_TEXT_MAX], given[STAT_TEXT_MAX];
	uint64_t released;
	size_t i;

	json_array_foreach(devices, i, device)
		add_limit(table, number(device, "index", index), device);
	if (json_is_object(pinned))
		add_limit(table, "pinned", pinned);
	print_and_free(table);
	if (stat_reply_u64(process->reply, "released_bytes", &released) && released) {
		stat_bytes(given, released);
		printf("gave %s back to the driver\n", given);
	}
	json_array_foreach(devices, i, device)
		explain_limit(number(device, "index", index), device);
	explain_limit("pinned", pinned);
}

void stat_config_show(const struct stat_process *process, const struct stat_options *options)
{
	static const char *const headings[] = {"<SETTING", "<SOURCE", "<VALUE"};
	struct stat_table *table = stat_table_new(headings, LENGTH(headings));
	const json_t *settings = json_object_get(process->reply, "settings"), *setting;
	size_t i;

	json_array_foreach(settings, i, setting) {
		const json_t *value = json_object_get(setting, "value");
		const char *cells[] = {
			stat_reply_text(setting, "name"),
			stat_reply_text(setting, "source"),
			json_is_null(value) ? "-" : stat_reply_text(setting, "value"),
		};

		stat_table_add(table, cells);
	}
	print_and_free(table);
}
