/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "report_process.h"

#include <inttypes.h>
#include <stdlib.h>

#include "common/size.h"
#include "tools/answer/stat_async.h"
#include "tools/answer/stat_cause.h"
#include "tools/answer/stat_map.h"
#include "tools/answer/stat_sleep.h"
#include "tools/answer/stat_spill.h"
#include "tools/replay/replay_history.h"
#include "tools/text/stat_text.h"
#include "report_figures.h"
#include "report_recording.h"

#define ADDRESS_END (UINT64_C(1) << 59)

static void copy(json_t *object, const char *to, const json_t *from, const char *key)
{
	uint64_t value;

	if (stat_reply_u64(from, key, &value))
		json_object_set_new(object, to, json_integer((json_int_t)value));
}

static void add_bar(json_t *facts, const json_t *counters, unsigned number)
{
	static const char *const keys[][2] = {
		{"used", "used_bytes"},
		{"cached", "cached_bytes"},
		{"pending", "pending_bytes"},
		{"returning", "returning_bytes"},
		{"outside", "outside_bytes"},
		{"total", "device_total_bytes"},
		{"limit", "limit_bytes"},
	};
	char name[STAT_ERROR_MAX];
	json_t *bar = stat_alloc(json_pack("{s:s}", "name", report_memory_name(name, number)));

	for (size_t i = 0; i < sizeof(keys) / sizeof(*keys); i++)
		copy(bar, keys[i][0], counters, keys[i][1]);
	json_array_append_new(json_object_get(facts, "devices"), bar);
}

static void add_rounds(json_t *facts, const json_t *counters, unsigned number)
{
	const json_t *rounds = json_object_get(counters, "retries"), *round;
	char memory[STAT_ERROR_MAX], name[64];
	json_t *entry;
	size_t i;

	json_array_foreach(rounds, i, round) {
		if (!stat_reply_u64_or_0(round, "count"))
			continue;
		stat_clean(name, sizeof(name), stat_reply_text(round, "name"));
		entry = stat_alloc(json_pack("{s:s, s:s}", "memory", report_memory_name(memory, number), "name", name));
		copy(entry, "count", round, "count");
		copy(entry, "gained_bytes", round, "gained_bytes");
		copy(entry, "ns", round, "ns");
		json_array_append_new(json_object_get(facts, "rounds"), entry);
	}
}

static void add_memory(json_t *facts, const json_t *counters, unsigned number)
{
	add_bar(facts, counters, number);
	report_figures_add_counters(facts, counters, number);
	add_rounds(facts, counters, number);
}

/* Notes whether the process is asleep, and what it keeps. */
static void add_sleep(json_t *facts, const json_t *status)
{
	json_t *notes = json_object_get(facts, "notes");
	char text[STAT_SLEEP_MAX];

	stat_sleep_sentence(text, status);
	if (!*text)
		return;
	json_array_append_new(notes, json_sprintf("The process is %s.", text));
	for (size_t i = 0; stat_sleep_fact(text, status, i); i++)
		json_array_append_new(notes, json_string(text));
}

/* Notes what is in the host, and what it costs. */
static void add_spill(json_t *facts, const json_t *status)
{
	char text[STAT_SPILL_MAX];

	for (size_t i = 0; stat_spill_fact(text, status, i); i++)
		json_array_append_new(json_object_get(facts, "notes"), json_string(text));
}

/* Notes what the pool has served in stream order, and why the rest was left to the driver. */
static void add_async(json_t *facts, const json_t *status)
{
	char text[STAT_ASYNC_MAX];

	for (size_t i = 0; stat_async_fact(text, status, i); i++)
		json_array_append_new(json_object_get(facts, "notes"), json_string(text));
}

static void add_status(json_t *facts, const json_t *status)
{
	const json_t *devices = json_object_get(status, "devices"), *device;
	char age[STAT_TEXT_MAX], text[256], clean[256];
	uint64_t index;
	size_t i;

	stat_age(age, stat_reply_u64_or_0(status, "uptime_ns"));
	snprintf(text, sizeof(text), "up %s, pool %.32s, reuse %.32s, gpupool %.32s", age,
		stat_reply_text(status, "pool"), stat_reply_text(status, "reuse"), stat_reply_text(status, "version"));
	stat_clean(clean, sizeof(clean), text);
	json_object_set_new(facts, "summary", json_string(clean));
	add_sleep(facts, status);
	add_spill(facts, status);
	add_async(facts, status);
	json_object_set_new(facts, "devices", json_array());
	json_object_set_new(facts, "rounds", json_array());
	json_array_foreach(devices, i, device)
		if (i < GP_LIMIT_DEVICES_MAX && stat_reply_u64(device, "index", &index) && index < HISTORY_DEVICES_MAX)
			add_memory(facts, device, (unsigned)index);
	if (stat_reply_u64_or_0(json_object_get(status, "pinned"), "total_bytes"))
		add_memory(facts, json_object_get(status, "pinned"), HISTORY_PINNED);
}

static void put_blocks(struct report_events *events, const struct stat_segment *segment, unsigned memory)
{
	uint64_t offset = 0;
	const json_t *item;
	size_t i;

	json_array_foreach(segment->blocks, i, item) {
		struct report_event event = {.memory = memory, .addr = segment->address + offset};
		struct stat_map_block block;

		if (!stat_map_block(item, offset, &block) || block.bytes > segment->size_bytes - offset)
			continue;
		offset += block.bytes;
		event.kind = block.part == STAT_PART_PENDING ? REPORT_PENDING_NEW : REPORT_BLOCK_NEW;
		event.bytes = block.bytes;
		event.requested_bytes = block.requested;
		if (block.part != STAT_PART_CACHED)
			report_events_put(events, &event);
	}
}

static void put_segments(struct report_events *events, const struct stat_map *map, const struct stat_map_pool *pool)
{
	unsigned memory = pool->device < 0 ? HISTORY_PINNED : (unsigned)pool->device;

	for (size_t i = pool->first; i < pool->first + pool->n; i++) {
		const struct stat_segment *segment = &map->segments[i];
		struct report_event event = {
			REPORT_SEGMENT_NEW, memory, 0, segment->address, segment->size_bytes, segment->requested_bytes};

		if (segment->address >= ADDRESS_END || segment->size_bytes >= ADDRESS_END)
			continue;
		report_events_put(events, &event);
		put_blocks(events, segment, memory);
	}
}

/* Adds the segments and blocks of all pools. Each context of a device has a pool, but the device is listed once. */
static void add_map(struct report_events *events, json_t *facts, const json_t *reply)
{
	bool is_listed[HISTORY_MEMORIES_MAX] = {false};
	struct stat_map map;

	stat_map_make(&map, reply);
	for (size_t i = 0; i < map.n_pools; i++) {
		const struct stat_map_pool *pool = &map.pools[i];
		int64_t number = pool->device < 0 ? HISTORY_PINNED : pool->device;

		if (number >= HISTORY_MEMORIES_MAX || !pool->n)
			continue;
		put_segments(events, &map, pool);
		if (!is_listed[number])
			json_array_append_new(json_object_get(facts, "memories"), report_memory((unsigned)number));
		is_listed[number] = true;
	}
	if (map.is_truncated)
		json_array_append_new(json_object_get(facts, "notes"),
			json_string("The process holds more blocks than fit its answer: the map is incomplete."));
	stat_map_free(&map);
}

static void add_oom(json_t *facts, const json_t *oom)
{
	const json_t *last = json_object_get(oom, "last");
	char bytes[STAT_TEXT_MAX], age[STAT_TEXT_MAX], missing[STAT_TEXT_MAX], text[512], clean[512];
	uint64_t n = stat_reply_u64_or_0(oom, "n_ooms"), missing_bytes = stat_reply_u64_or_0(last, "missing_bytes");

	if (!json_is_object(last))
		return;
	stat_bytes(bytes, stat_reply_u64_or_0(last, "requested_bytes"));
	stat_bytes(missing, missing_bytes);
	stat_age(age, stat_reply_u64_or_0(last, "age_ns"));
	snprintf(text, sizeof(text),
		"%" PRIu64
		" out-of-memory error%s; the last one %s ago: a request for %s of %.16s memory failed; %s%s%s%s",
		n, n == 1 ? "" : "s", age, bytes, stat_reply_text(last, "kind"), stat_cause_text(last),
		missing_bytes ? ": " : "", missing_bytes ? missing : "",
		missing_bytes ? " short even if all available memory were contiguous" : "");
	stat_clean(clean, sizeof(clean), text);
	json_object_set_new(facts, "oom", json_string(clean));
}

enum stat_exit report_process(struct report_events *events, json_t *facts, const struct stat_source *source)
{
	enum stat_exit result;
	json_t *status = stat_source_ask(source, "status", &result);
	json_t *map = status ? stat_source_ask(source, "map", &result) : NULL;
	json_t *oom = map ? stat_source_ask(source, "oom", &result) : NULL;

	if (oom) {
		add_status(facts, status);
		add_map(events, facts, map);
		add_oom(facts, oom);
	}
	json_decref(status);
	json_decref(map);
	json_decref(oom);
	return result;
}
