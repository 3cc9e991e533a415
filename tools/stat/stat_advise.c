/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * gpupool-stat advise. For a recording it replays (tools/replay/replay_advise.h). For a process it has only counters,
 * and says what they cannot tell.
 */

#include "stat_commands.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "common/size.h"
#include "tools/answer/stat_map.h"
#include "tools/ask/stat_report.h"
#include "tools/convert/stat_source.h"
#include "tools/replay/replay_advise.h"
#include "tools/text/stat_number.h"
#include "tools/text/stat_shell.h"
#include "tools/text/stat_text.h"

enum { COMMAND_MAX = 1024, LINE_SIZE = COMMAND_MAX + 128 };

#define MIB UINT64_C(1048576)

static const char unknown[] = "Counters do not tell in which order the program allocates, so neither the memory of "
			      "another pool type nor the smallest limit that suffices is known. A recording tells it:";

/* The facts about a device. */
struct device {
	uint64_t index, used, cached, pending, total, peak_used, peak_total, limit, hits, misses, ooms;
	bool has_limit;
	/* From the map: free memory in segments with used blocks, and the largest free block. */
	bool has_map;
	uint64_t stuck, largest;
};

static void read_device(struct device *d, const json_t *device)
{
	*d = (struct device){
		.index = stat_reply_u64_or_0(device, "index"),
		.used = stat_reply_u64_or_0(device, "used_bytes"),
		.cached = stat_reply_u64_or_0(device, "cached_bytes"),
		.pending = stat_reply_u64_or_0(device, "pending_bytes"),
		.total = stat_reply_u64_or_0(device, "total_bytes"),
		.peak_used = stat_reply_u64_or_0(device, "peak_used_bytes"),
		.peak_total = stat_reply_u64_or_0(device, "peak_total_bytes"),
		.hits = stat_reply_u64_or_0(device, "hits"),
		.misses = stat_reply_u64_or_0(device, "misses"),
		.ooms = stat_reply_u64_or_0(device, "ooms"),
	};
	d->has_limit = stat_reply_u64(device, "limit_bytes", &d->limit);
}

static void read_map(struct device *d, const struct stat_map *map)
{
	for (size_t i = 0; i < map->n_pools; i++) {
		const struct stat_map_pool *pool = &map->pools[i];

		if (pool->device != (int64_t)d->index)
			continue;
		d->has_map = true;
		if (pool->largest_cached_bytes > d->largest)
			d->largest = pool->largest_cached_bytes;
		for (size_t k = pool->first; k < pool->first + pool->n; k++)
			d->stuck += map->segments[k].n_used ? map->segments[k].cached_bytes : 0;
	}
}

/* The most that another pool type could save at the peak: what was taken from the driver and not used. */
static uint64_t most_saved(const struct device *d)
{
	return d->peak_total > d->peak_used ? d->peak_total - d->peak_used : 0;
}

/* A limit that the process has not exceeded, in MiB. */
static uint64_t limit_mib(uint64_t peak_total)
{
	return peak_total / MIB + (peak_total % MIB != 0);
}

/* Writes the command line of a process as it can be pasted into a shell, or "COMMAND". */
static void write_command(char text[static COMMAND_MAX], pid_t pid)
{
	char path[32], words[COMMAND_MAX];
	FILE *file;
	size_t n;

	snprintf(path, sizeof(path), "/proc/%d/cmdline", (int)pid);
	file = fopen(path, "re");
	n = file ? fread(words, 1, sizeof(words), file) : 0;
	if (file)
		fclose(file);
	stat_shell_command(text, COMMAND_MAX, words, n < sizeof(words) ? n : 0);
}

static void show_device(const struct device *d)
{
	char a[STAT_TEXT_MAX], b[STAT_TEXT_MAX], c[STAT_TEXT_MAX], limit[STAT_TEXT_MAX] = "none";
	uint64_t n = d->hits + d->misses;

	stat_bytes(a, d->total);
	stat_bytes(b, d->used);
	stat_bytes(c, d->cached);
	printf("device %" PRIu64 ": %s taken from the driver: %s used, %s cached, ", d->index, a, b, c);
	stat_bytes(a, d->pending);
	printf("%s pending\n", a);
	stat_bytes(a, d->peak_total);
	stat_bytes(b, d->peak_used);
	if (d->has_limit)
		stat_bytes(limit, d->limit);
	printf("  peak %s taken, %s used: %.2f; limit %s\n", a, b,
		d->peak_used ? (double)d->peak_total / (double)d->peak_used : 1, limit);
	printf("  hits %.1f%%, %" PRIu64 " out-of-memory error%s\n", n ? 100 * (double)d->hits / (double)n : 0, d->ooms,
		stat_plural(d->ooms));
	if (!d->has_map)
		return;
	stat_bytes(a, d->stuck);
	stat_bytes(b, d->largest);
	printf("  %s unused between blocks in use, largest unused block %s\n", a, b);
}

/* Cached memory in segments without used blocks; all cached memory if the segments are not known. */
static uint64_t reclaimable(const struct device *d)
{
	return d->has_map && d->stuck < d->cached ? d->cached - d->stuck : d->has_map ? 0 : d->cached;
}

static void show_steps(const struct device *d, pid_t pid)
{
	char a[STAT_TEXT_MAX];

	if (d->ooms)
		printf("  gpupool-stat oom %d shows why memory ran out\n", (int)pid);
	stat_bytes(a, reclaimable(d));
	if (reclaimable(d) > d->total / 10)
		printf("  gpupool-stat reclaim --device=%" PRIu64 " %d gives up to %s back now\n", d->index, (int)pid,
			a);
	if (d->stuck > d->total / 10)
		printf("  gpupool-stat map %d shows the blocks between which memory is unused\n", (int)pid);
}

/* The values of all devices together. */
struct process {
	pid_t pid;
	const json_t *status;
	struct device devices[GP_LIMIT_DEVICES_MAX];
	size_t n_devices;
	uint64_t most_saved, peak_total; /* saved: of all devices; peak: of the device with the highest */
	char command[COMMAND_MAX], advised[LINE_SIZE], record[LINE_SIZE];
};

/* Writes the option for a pool type that is not the default, or "". */
static void name_pool(char option[static STAT_TEXT_MAX], const char *pool)
{
	option[0] = '\0';
	if (strcmp(pool, "split") != 0 && stat_shell_is_plain(pool) && strlen(pool) < STAT_TEXT_MAX / 2)
		snprintf(option, STAT_TEXT_MAX, " --pool=%s", pool);
}

static void read_process(struct process *p, const json_t *map_reply)
{
	const json_t *devices = json_object_get(p->status, "devices"), *device;
	struct stat_map map = {0};
	char pool[STAT_TEXT_MAX];
	size_t i;

	if (map_reply)
		stat_map_make(&map, map_reply);
	json_array_foreach(devices, i, device) {
		struct device *d = &p->devices[p->n_devices];

		if (p->n_devices == GP_LIMIT_DEVICES_MAX)
			break;
		read_device(d, device);
		if (map_reply)
			read_map(d, &map);
		p->most_saved += most_saved(d);
		p->peak_total = d->peak_total > p->peak_total ? d->peak_total : p->peak_total;
		p->n_devices++;
	}
	if (map_reply)
		stat_map_free(&map);
	name_pool(pool, stat_reply_text(p->status, "pool"));
	write_command(p->command, p->pid);
	snprintf(p->record, sizeof(p->record), "gpupool-run --record=/tmp/gpupool.rec %s", p->command);
	snprintf(p->advised, sizeof(p->advised), "gpupool-run%s --limit=%" PRIu64 "MiB %s", pool,
		limit_mib(p->peak_total), p->command);
}

static void show(const struct process *p)
{
	char title[COMMAND_MAX], saved[STAT_TEXT_MAX], text[512], pool[32];
	struct stat_process process = {.pid = p->pid};

	stat_clean(title, sizeof(title), p->command);
	stat_report_title(&process, title);
	stat_clean(pool, sizeof(pool), stat_reply_text(p->status, "pool"));
	printf("pool type %s\n", pool);
	for (size_t i = 0; i < p->n_devices; i++) {
		show_device(&p->devices[i]);
		show_steps(&p->devices[i], p->pid);
	}
	putchar('\n');
	stat_print_lines(unknown, stat_width());
	printf("    %s\n    gpupool-stat advise /tmp/gpupool.rec\n", p->record);
	if (!p->peak_total)
		return;
	stat_bytes(saved, p->most_saved);
	printf("\n    %s\n", p->advised);
	snprintf(text, sizeof(text),
		"This keeps the pool type, with the limit that the process has not exceeded so far. Another pool type "
		"saves at most %s of the peak, what was taken from the driver and not used.",
		saved);
	stat_print_lines(text, stat_width());
}

static void set(json_t *object, const char *name, uint64_t value)
{
	json_object_set_new(object, name, json_integer(value > INT64_MAX ? INT64_MAX : (json_int_t)value));
}

static json_t *make_device(const struct device *d)
{
	json_t *object = stat_alloc(json_object());

	set(object, "index", d->index);
	set(object, "used_bytes", d->used);
	set(object, "cached_bytes", d->cached);
	set(object, "pending_bytes", d->pending);
	set(object, "total_bytes", d->total);
	set(object, "peak_used_bytes", d->peak_used);
	set(object, "peak_total_bytes", d->peak_total);
	json_object_set_new(object, "limit_bytes", d->has_limit ? json_integer((json_int_t)d->limit) : json_null());
	set(object, "hits", d->hits);
	set(object, "misses", d->misses);
	set(object, "ooms", d->ooms);
	json_object_set_new(object, "stuck_bytes", d->has_map ? json_integer((json_int_t)d->stuck) : json_null());
	json_object_set_new(
		object, "largest_cached_bytes", d->has_map ? json_integer((json_int_t)d->largest) : json_null());
	return object;
}

static json_t *make_advice(const struct process *p)
{
	json_t *object;

	if (!p->peak_total)
		return json_null();
	object = stat_alloc(json_object());
	json_object_set(object, "pool", json_object_get(p->status, "pool"));
	set(object, "limit_bytes", limit_mib(p->peak_total) * MIB);
	set(object, "saved_bytes_max", p->most_saved);
	json_object_set_new(object, "command", json_string(p->advised));
	return object;
}

static void show_json(const struct process *p)
{
	json_t *object = stat_alloc(json_object()), *devices = stat_alloc(json_array());

	json_object_set_new(object, "schema", json_string("gpupool.advise/1"));
	json_object_set_new(object, "source", json_string("process"));
	set(object, "pid", (uint64_t)p->pid);
	for (size_t i = 0; i < p->n_devices; i++)
		json_array_append_new(devices, make_device(&p->devices[i]));
	json_object_set_new(object, "devices", devices);
	json_object_set_new(object, "unknown", json_string(unknown));
	json_object_set_new(object, "record_command", json_string(p->record));
	json_object_set_new(object, "advice", make_advice(p));
	stat_report_print(object);
	json_decref(object);
}

static enum stat_exit advise_process(pid_t pid, const struct stat_options *options)
{
	struct stat_source source = {.kind = STAT_SOURCE_PROCESS, .pid = pid, .timeout_ms = options->timeout_ms};
	struct process process = {.pid = pid};
	json_t *status, *map = NULL;
	enum stat_exit result;

	status = stat_source_ask(&source, "status", &result);
	if (status)
		map = stat_source_ask(&source, "map", &result);
	if (status) {
		process.status = status;
		read_process(&process, map);
		if (options->is_json)
			show_json(&process);
		else
			show(&process);
	}
	json_decref(map);
	json_decref(status);
	return result;
}

enum stat_exit stat_advise_run(const struct stat_command *command, const struct stat_options *options)
{
	uint64_t number;

	if (stat_number_parse(options->file, INT_MAX, &number) && number)
		return advise_process((pid_t)number, options);
	return replay_advise_file(options);
}
