/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "top_detail.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/answer/stat_group.h"
#include "tools/answer/stat_map.h"
#include "tools/answer/stat_rate.h"
#include "tools/text/stat_name.h"

enum {
	ANSWER_MAX = 8 << 20,
	TIMEOUT_MS = 500,
	BAR = 20, /* columns on a narrow screen */
	BAR_SHARE = 6,
	HEAD = 34,
	HEADING_MAX = 96,
	LINE_MAX_BYTES = 160,
	REGION_LINES_MAX = 4096,
};

/* The shortest intervals: walking all blocks costs the process time, and naming call sites costs top time. */
#define AGAIN_NS       INT64_C(1000000000)
#define AGAIN_SITES_NS INT64_C(5000000000)
enum { COST_SHARE = 20 }; /* asking takes at most one part in COST_SHARE of the time */

enum page { SIZES, SEGMENTS, SITES, COUNTERS, REGIONS, N_PAGES };

static const struct {
	const char *name, *request, *schema;
} detail_pages[N_PAGES] = {
	[SIZES] = {"sizes", "leaks\n", "leaks"},
	[SEGMENTS] = {"segments", "map\n", "map"},
	[SITES] = {"call sites", "leaks\n", "leaks"},
	[COUNTERS] = {"counters", NULL, NULL},
	[REGIONS] = {"regions", NULL, NULL},
};

struct top_detail {
	pid_t pid;
	uid_t uid;
	enum page page;
	size_t first, n_items;
	struct stat_survey survey;
	int64_t next_ns;
	json_t *reply;        /* the answer that is shown; NULL: none yet */
	const json_t *before; /* while the page of counters is made: the answer before; NULL: none */
	char command[TOP_COMMAND_MAX], error[STAT_ERROR_MAX];

	/* Content of the page that is shown. */
	struct stat_groups groups;
	struct stat_map map;
	struct item {
		size_t pool;
		const struct stat_segment *segment; /* NULL: the line of the pool */
	} * items;
	char (*lines)[LINE_MAX_BYTES];
};

struct top_detail *top_detail_new(pid_t pid)
{
	struct top_detail *detail = stat_alloc(calloc(1, sizeof(*detail)));

	detail->pid = pid;
	return detail;
}

static void forget_items(struct top_detail *detail)
{
	stat_groups_free(&detail->groups);
	stat_map_free(&detail->map);
	free(detail->items);
	free(detail->lines);
	detail->items = NULL;
	detail->lines = NULL;
	detail->n_items = 0;
	json_decref(detail->reply);
	detail->reply = NULL;
}

void top_detail_free(struct top_detail *detail)
{
	if (!detail)
		return;
	forget_items(detail);
	stat_survey_deinit(&detail->survey);
	free(detail);
}

pid_t top_detail_pid(const struct top_detail *detail)
{
	return detail->pid;
}

static void read_groups(struct top_detail *detail)
{
	struct stat_stacks *stacks = stat_stacks_new(detail->reply, detail->pid, detail->uid);

	stat_groups_make(&detail->groups, detail->page == SIZES ? STAT_BY_SIZE : STAT_BY_SITE, detail->reply, stacks);
	stat_stacks_free_quietly(stacks);
	detail->n_items = detail->groups.n;
}

static void read_segments(struct top_detail *detail)
{
	struct stat_map *map = &detail->map;

	stat_map_make(map, detail->reply);
	detail->items = stat_alloc(calloc(map->n_pools + map->n_segments + 1, sizeof(*detail->items)));
	for (size_t i = 0; i < map->n_pools; i++) {
		detail->items[detail->n_items++] = (struct item){.pool = i};
		for (size_t k = 0; k < map->pools[i].n; k++)
			detail->items[detail->n_items++] =
				(struct item){.pool = i, .segment = &map->segments[map->pools[i].first + k]};
	}
}

static bool ends_in(const char *key, const char *end)
{
	size_t length = strlen(key), end_length = strlen(end);

	return length >= end_length && !strcmp(key + length - end_length, end);
}

/* per_second: negative: not shown */
static void add_line(struct top_detail *detail, const char *key, const json_t *value, double per_second)
{
	char number[STAT_TEXT_MAX] = "none", clean[64], text[64], rate[STAT_TEXT_MAX] = "";
	uint64_t n = json_is_integer(value) && json_integer_value(value) > 0 ? (uint64_t)json_integer_value(value) : 0;

	if (json_is_object(value) || json_is_array(value))
		return;
	if (json_is_integer(value) && ends_in(key, "_bytes"))
		stat_bytes(number, n);
	else if (json_is_integer(value) && ends_in(key, "_ns"))
		stat_duration(number, n);
	else if (json_is_integer(value))
		snprintf(number, sizeof(number), "%" PRIu64, n);
	stat_clean(clean, sizeof(clean), key);
	stat_clean(text, sizeof(text), json_is_string(value) ? json_string_value(value) : number);
	if (per_second >= 0)
		stat_rate_text(rate, per_second);
	detail->lines = stat_alloc(realloc(detail->lines, (detail->n_items + 1) * sizeof(*detail->lines)));
	snprintf(detail->lines[detail->n_items++], LINE_MAX_BYTES, "%-24.40s %12s %12s", clean, text, rate);
}

/* Adds a line for each number of a device, or of pinned memory. */
static void add_lines(struct top_detail *detail, const char *title, const json_t *object, const json_t *before)
{
	uint64_t elapsed_ns = stat_rate_elapsed_ns(detail->reply, detail->before);
	json_t *members = json_deep_copy(object), *value;
	const char *key;

	add_line(detail, title, json_object_get(object, "index"), -1);
	json_object_foreach(members, key, value)
		add_line(detail, key, value, stat_rate_of_member(key, object, before, elapsed_ns));
	json_decref(members);
}

static void read_counters(struct top_detail *detail)
{
	const json_t *devices = json_object_get(detail->reply, "devices"), *device;
	size_t i;

	json_array_foreach(devices, i, device)
		add_lines(detail, "device", device, stat_rate_device_before(detail->before, device));
	if (json_is_object(json_object_get(detail->reply, "pinned")))
		add_lines(detail, "pinned memory", json_object_get(detail->reply, "pinned"),
			json_object_get(detail->before, "pinned"));
}

/* Adds the line of a region. The name comes last, because it may be wide. */
static void add_region(struct top_detail *detail, uint64_t device, const json_t *region)
{
	static const char *const keys[] = {"used_bytes", "cached_bytes", "pending_bytes", "total_bytes"};
	char texts[4][STAT_TEXT_MAX], name[96];

	for (size_t i = 0; i < 4; i++)
		stat_bytes(texts[i], stat_reply_u64_or_0(region, keys[i]));
	stat_clean(name, sizeof(name), stat_reply_text(region, "name"));
	detail->lines = stat_alloc(realloc(detail->lines, (detail->n_items + 1) * sizeof(*detail->lines)));
	snprintf(detail->lines[detail->n_items++], LINE_MAX_BYTES, "%6" PRIu64 " %9.12s %9.12s %9.12s %9.12s  %s",
		device, texts[0], texts[1], texts[2], texts[3], name);
}

static void read_regions(struct top_detail *detail)
{
	const json_t *devices = json_object_get(detail->reply, "devices"), *device, *region;
	size_t i, k;

	json_array_foreach(devices, i, device)
		json_array_foreach(json_object_get(device, "by_region"), k, region)
			if (detail->n_items < REGION_LINES_MAX)
				add_region(detail, stat_reply_u64_or_0(device, "index"), region);
}

static void read_reply(struct top_detail *detail, json_t *reply)
{
	forget_items(detail);
	detail->reply = json_incref(reply);
	if (detail->page == SEGMENTS)
		read_segments(detail);
	else if (detail->page == COUNTERS)
		read_counters(detail);
	else if (detail->page == REGIONS)
		read_regions(detail);
	else
		read_groups(detail);
}

/* Asks the process. If it has ended, its last answer stays. */
static void ask(struct top_detail *detail, const struct stat_options *options)
{
	struct stat_question question = {
		.request = detail_pages[detail->page].request,
		.schema = detail_pages[detail->page].schema,
		.max_bytes = ANSWER_MAX,
		.timeout_ms = options->timeout_ms < TIMEOUT_MS ? options->timeout_ms : TIMEOUT_MS,
		.pids = &detail->pid,
		.n_pids = 1,
	};
	const struct stat_process *process;

	stat_survey_again(&detail->survey, &question);
	process = stat_survey_find(&detail->survey, detail->pid);
	if (process)
		detail->uid = process->uid;
	if (process && process->reply)
		read_reply(detail, process->reply);
	stat_clean(detail->error, sizeof(detail->error), process ? process->error : "has ended.");
}

void top_detail_ask(struct top_detail *detail, const struct top_model *model, const struct stat_options *options)
{
	const struct top_row *row = top_model_find(model, detail->pid);
	int64_t begin_ns = ctl_client_now_ns(), took_ns, again_ns = detail->page == SITES ? AGAIN_SITES_NS : AGAIN_NS;

	if (row)
		memcpy(detail->command, row->command, sizeof(detail->command));
	if (begin_ns < detail->next_ns)
		return;
	if (!detail_pages[detail->page].request) {
		detail->before = row ? row->before : NULL;
		if (row && row->reply)
			read_reply(detail, row->reply);
		detail->before = NULL;
		stat_clean(detail->error, sizeof(detail->error), row ? row->error : "has ended.");
		return;
	}
	ask(detail, options);
	took_ns = ctl_client_now_ns() - begin_ns;
	detail->next_ns = begin_ns + (took_ns * COST_SHARE > again_ns ? took_ns * COST_SHARE : again_ns);
}

static void choose(struct top_detail *detail, enum page page)
{
	if (page == detail->page)
		return;
	detail->page = page;
	detail->first = 0;
	detail->next_ns = 0;
	detail->error[0] = '\0';
	forget_items(detail);
	/* A late answer would be to the request of the other page, so the connection is closed. */
	stat_survey_deinit(&detail->survey);
}

bool top_detail_key(struct top_detail *detail, int key)
{
	size_t step = 10, last = detail->n_items ? detail->n_items - 1 : 0;

	if (key >= '1' && key < '1' + N_PAGES)
		choose(detail, (enum page)(key - '1'));
	else if (key == '\t' || key == TOP_KEY_RIGHT)
		choose(detail, (enum page)((detail->page + 1) % N_PAGES));
	else if (key == TOP_KEY_UP)
		detail->first -= detail->first > 0;
	else if (key == TOP_KEY_DOWN)
		detail->first += detail->first < last;
	else if (key == TOP_KEY_PAGE_UP)
		detail->first -= detail->first < step ? detail->first : step;
	else if (key == TOP_KEY_PAGE_DOWN)
		detail->first = detail->first + step < last ? detail->first + step : last;
	else if (key == TOP_KEY_HOME)
		detail->first = 0;
	else if (key == TOP_KEY_END)
		detail->first = last;
	else
		return false;
	return true;
}

static void draw_group(const struct top_screen *screen, const struct stat_group *group, uint64_t most, int row)
{
	char bytes[STAT_TEXT_MAX], oldest[STAT_TEXT_MAX] = "-", text[96];
	int bar = screen->columns / BAR_SHARE > BAR ? screen->columns / BAR_SHARE : BAR, column;
	int n = most ? (int)((double)group->bytes / (double)most * bar + 0.5) : 0;
	char *key = stat_alloc(strdup(group->key));
	bool has_bar = screen->columns >= 70;

	stat_bytes(bytes, group->bytes);
	if (group->oldest_ns)
		stat_age(oldest, group->oldest_ns);
	snprintf(text, sizeof(text), "%9s %8" PRIu64 " %7s ", bytes, group->blocks, oldest);
	column = top_screen_put(screen, row, 1, screen->columns, TOP_PLAIN, text);
	for (int i = 0; has_bar && i < n; i++)
		top_screen_part(screen, row, column + i, STAT_PART_USED, stat_look_glyph(screen->look, STAT_PART_USED));
	column += has_bar ? bar + 1 : 0;
	if (column < screen->columns)
		stat_name_fit(key, (size_t)(screen->columns - column));
	top_screen_put(screen, row, column, screen->columns, TOP_PLAIN, key);
	free(key);
}

static void draw_pool(const struct top_screen *screen, const struct stat_map_pool *pool, int row)
{
	char size[STAT_TEXT_MAX], largest[STAT_TEXT_MAX], name[STAT_MAP_NAME_MAX], text[256];

	stat_bytes(size, pool->sum.size_bytes);
	stat_bytes(largest, pool->largest_cached_bytes);
	stat_map_name(name, pool);
	snprintf(text, sizeof(text), "%s: %s in %" PRIu64 " segment%s, largest cached block %s", name, size,
		pool->n_segments, pool->n_segments == 1 ? "" : "s", largest);
	top_screen_put(screen, row, 1, screen->columns, TOP_BOLD, text);
}

static void draw_segment(
	const struct top_screen *screen, const struct top_detail *detail, const struct stat_segment *segment, int row)
{
	size_t n = screen->columns > HEAD + 1 ? (size_t)(screen->columns - HEAD - 1) : 1;
	uint64_t cell_bytes = stat_map_cell_bytes(&detail->map, n);
	struct stat_cell *cells = stat_alloc(calloc(n, sizeof(*cells)));
	char size[STAT_TEXT_MAX], text[96];

	stat_bytes(size, segment->size_bytes);
	snprintf(text, sizeof(text), "0x%-14" PRIx64 "%9s %4.0f%%", segment->address, size,
		segment->size_bytes ? 100.0 * (double)segment->used_bytes / (double)segment->size_bytes : 0.0);
	top_screen_put(screen, row, 1, screen->columns, TOP_PLAIN, text);
	n = stat_map_cells(segment, cell_bytes, cells, n);
	for (size_t i = 0; i < n; i++)
		top_screen_part(
			screen, row, HEAD + (int)i, cells[i].part, stat_map_cell_glyph(screen->look, &cells[i]));
	free(cells);
}

static void draw_item(const struct top_screen *screen, const struct top_detail *detail, size_t i, int row)
{
	const struct item *item = detail->items ? &detail->items[i] : NULL;
	uint64_t most = 0;

	if (detail->lines) {
		top_screen_put(screen, row, 1, screen->columns, TOP_PLAIN, detail->lines[i]);
	} else if (item && !item->segment) {
		draw_pool(screen, &detail->map.pools[item->pool], row);
	} else if (item) {
		draw_segment(screen, detail, item->segment, row);
	} else {
		for (size_t k = 0; k < detail->groups.n; k++)
			most = detail->groups.list[k].bytes > most ? detail->groups.list[k].bytes : most;
		draw_group(screen, &detail->groups.list[i], most, row);
	}
}

static void draw_page_names(const struct top_screen *screen, const struct top_detail *detail, int row)
{
	int column = 1;

	for (int i = 0; i < N_PAGES; i++) {
		char text[32];

		snprintf(text, sizeof(text), i == (int)detail->page ? "[%d %s]" : " %d %s ", i + 1,
			detail_pages[i].name);
		column = top_screen_put(screen, row, column, screen->columns,
				 i == (int)detail->page ? TOP_BOLD : TOP_PLAIN, text) +
			 1;
	}
}

void top_detail_help(char text[static TOP_DETAIL_HELP_MAX])
{
	char keys[32] = "";
	size_t used;

	for (int i = 0; i < N_PAGES; i++)
		snprintf(keys + strlen(keys), sizeof(keys) - strlen(keys), "%d%s", i + 1,
			i + 1 < N_PAGES ? " " : ", Tab");
	used = (size_t)snprintf(text, TOP_DETAIL_HELP_MAX, "%-19s its pages: ", keys);
	for (int i = 0; i < N_PAGES && used < TOP_DETAIL_HELP_MAX; i++)
		used += (size_t)snprintf(
			text + used, TOP_DETAIL_HELP_MAX - used, "%s%s", i ? ", " : "", detail_pages[i].name);
}

/* Returns the heading above the items, or why there are none. text: room for a heading that contains the pid. */
static const char *heading(const struct top_detail *detail, char text[static HEADING_MAX])
{
	const json_t *stacks = json_object_get(detail->reply, "stacks");

	if (!detail->reply)
		return *detail->error ? "" : "asking";
	if (detail->page == SEGMENTS)
		return "SEGMENT              SIZE USED";
	if (detail->page == COUNTERS)
		return "COUNTER                         VALUE   PER SECOND";
	if (detail->page == REGIONS)
		return detail->n_items ? "DEVICE      USED    CACHED   PENDING     TOTAL  REGION" : "no regions";
	if (detail->page == SITES && !json_is_true(json_object_get(stacks, "is_on")))
		snprintf(text, HEADING_MAX, "stacks are off; to record them: gpupool-stat stacks %d on",
			(int)detail->pid);
	else
		strcpy(text, "    BYTES   BLOCKS  OLDEST");
	return text;
}

void top_detail_draw(const struct top_screen *screen, struct top_detail *detail, int from, int to)
{
	char text[TOP_COMMAND_MAX + STAT_ERROR_MAX + 32];

	snprintf(text, sizeof(text), "pid %d  %s%s%s", (int)detail->pid, detail->error, *detail->error ? " | " : "",
		detail->command);
	top_screen_put(screen, from, 1, screen->columns, TOP_BOLD, text);
	draw_page_names(screen, detail, from + 1);
	top_screen_put(screen, from + 2, 1, screen->columns, TOP_BOLD, heading(detail, text));
	if (detail->first >= detail->n_items)
		detail->first = detail->n_items ? detail->n_items - 1 : 0;
	for (size_t i = detail->first; i < detail->n_items && from + 3 + (int)(i - detail->first) < to; i++)
		draw_item(screen, detail, i, from + 3 + (int)(i - detail->first));
}
