/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "top_model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/answer/stat_sleep.h"
#include "tools/answer/stat_spill.h"
#include "tools/ask/stat_environ.h"
#include "tools/ask/stat_explain.h"

enum { ANSWER_MAX = 1 << 20, TIMEOUT_MS = 500 };

void top_model_init(struct top_model *model)
{
	*model = (struct top_model){.devices = stat_alloc(calloc(TOP_DEVICES_MAX, sizeof(*model->devices)))};
}

static void free_rows(struct top_row *rows, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		json_decref(rows[i].reply);
		json_decref(rows[i].before);
	}
	free(rows);
}

void top_model_deinit(struct top_model *model)
{
	free_rows(model->rows, model->n_rows);
	free(model->shown);
	free(model->devices);
	stat_survey_deinit(&model->survey);
}

static uint64_t sum_of(const struct top_row *row, const char *key)
{
	return stat_reply_sum(json_object_get(row->reply, "devices"), key);
}

/* Returns the sum of the limits of all devices, or UINT64_MAX if one has none. */
static uint64_t limit_of(const json_t *devices)
{
	const json_t *device;
	uint64_t limit, total = 0;
	size_t i;

	json_array_foreach(devices, i, device)
		if (!stat_reply_u64(device, "limit_bytes", &limit) || __builtin_add_overflow(total, limit, &total))
			return UINT64_MAX;
	return total ? total : UINT64_MAX;
}

/* Writes the numbers of the devices, as many as fit. */
static void write_devices(char text[static TOP_DEVICES_TEXT_MAX], const json_t *devices)
{
	const json_t *device;
	uint64_t seen = 0, index;
	size_t used = 0, i;

	text[0] = '\0';
	json_array_foreach(devices, i, device)
		if (stat_reply_new_device(device, &seen, &index) && used + 4 < TOP_DEVICES_TEXT_MAX)
			used += (size_t)snprintf(
				text + used, TOP_DEVICES_TEXT_MAX - used, "%s%u", used ? "," : "", (unsigned)index);
}

static void write_asleep(struct top_row *row)
{
	char cell[STAT_COLUMN_MAX];

	stat_sleep_cell(cell, row->reply);
	if (strcmp(cell, "-") != 0)
		snprintf(row->asleep, sizeof(row->asleep), "%s%s", *cell >= '0' && *cell <= '9' ? "asleep " : "", cell);
}

static void write_spilled(struct top_row *row)
{
	char cell[STAT_COLUMN_MAX];

	stat_spill_cell(cell, row->reply);
	if (strcmp(cell, "-") != 0)
		snprintf(row->spilled, sizeof(row->spilled), "in host %s", cell);
}

static void read_reply(struct top_row *row)
{
	uint64_t hits = sum_of(row, "hits"), misses = sum_of(row, "misses");

	row->used_bytes = sum_of(row, "used_bytes");
	row->cached_bytes = sum_of(row, "cached_bytes");
	row->pending_bytes = sum_of(row, "pending_bytes");
	row->total_bytes = sum_of(row, "total_bytes");
	row->n_ooms = sum_of(row, "ooms");
	row->peak_bytes = sum_of(row, "peak_total_bytes");
	row->n_used_blocks = sum_of(row, "n_used_blocks");
	row->limit_bytes = limit_of(json_object_get(row->reply, "devices"));
	write_devices(row->devices, json_object_get(row->reply, "devices"));
	write_asleep(row);
	write_spilled(row);
	stat_rates_of_process(&row->rates, row->reply, row->before);
	row->uptime_ns = stat_reply_u64_or_0(row->reply, "uptime_ns");
	row->hit_rate = hits || misses ? (double)hits / ((double)hits + (double)misses) : -1;
}

const struct top_row *top_model_find(const struct top_model *model, pid_t pid)
{
	for (size_t i = 0; i < model->n_rows; i++)
		if (model->rows[i].pid == pid)
			return &model->rows[i];
	return NULL;
}

/* Describes a process. Texts that do not change are looked up once, and copied from the row before. */
static void describe(struct top_row *row, const struct stat_process *process, const struct top_row *before)
{
	char command[TOP_COMMAND_MAX];

	if (before) {
		memcpy(row->user, before->user, sizeof(row->user));
		memcpy(row->labels, before->labels, sizeof(row->labels));
		memcpy(row->command, before->command, sizeof(row->command));
	} else {
		char user[STAT_TEXT_MAX];

		stat_explain_user(user, process->uid);
		stat_clean(row->user, sizeof(row->user), user);
		stat_environ_labels(row->labels, sizeof(row->labels), process);
		stat_explain_command(command, sizeof(command), row->pid);
		stat_clean(row->command, sizeof(row->command), command);
	}
	if (process->reply)
		stat_clean(row->command, sizeof(row->command), stat_reply_text(process->reply, "command"));
}

static void take_row(struct top_row *row, const struct stat_process *process, const struct top_model *model)
{
	const struct top_row *before = top_model_find(model, process->pid);

	if (before && before->start_ticks != process->start_ticks)
		before = NULL;
	*row = (struct top_row){.pid = process->pid,
		.start_ticks = process->start_ticks,
		.hit_rate = -1,
		.rates.allocs = -1,
		.rates.misses = -1};
	describe(row, process, before);
	if (process->reply)
		row->reply = json_incref(process->reply);
	else if (before)
		row->reply = json_incref(before->reply);
	if (before)
		row->before = json_incref(process->reply ? before->reply : before->before);
	if (!process->reply)
		stat_clean(row->error, sizeof(row->error), process->error);
	if (row->reply)
		read_reply(row);
}

static struct top_device *find_device(struct top_model *model, const json_t *answer)
{
	struct top_device *device = model->devices, *end = device + model->n_devices;
	struct stat_device wanted;

	stat_device_read(&wanted, answer);
	while (device < end && !stat_device_is_same(&device->is, &wanted))
		device++;
	if (device < end)
		return device;
	if (model->n_devices == TOP_DEVICES_MAX)
		return NULL;
	model->n_devices++;
	*device = (struct top_device){.is = wanted, .free_bytes = UINT64_MAX};
	return device;
}

static void add(uint64_t *sum, const json_t *answer, const char *key)
{
	if (__builtin_add_overflow(*sum, stat_reply_u64_or_0(answer, key), sum))
		*sum = UINT64_MAX;
}

static void add_device(struct top_model *model, const json_t *answer)
{
	struct top_device *device = find_device(model, answer);
	uint64_t index = stat_reply_u64_or_0(answer, "index"), free_bytes;

	if (!device)
		return;
	device->is.index = device->is_seen && device->is.index < index ? device->is.index : index;
	device->is_seen = true;
	add(&device->used_bytes, answer, "used_bytes");
	add(&device->cached_bytes, answer, "cached_bytes");
	add(&device->pending_bytes, answer, "pending_bytes");
	add(&device->returning_bytes, answer, "returning_bytes");
	add(&device->held_bytes, answer, "total_bytes");
	/* Processes answer one after another; the smallest value is the newest, or close to it. */
	if (stat_reply_u64(answer, "device_free_bytes", &free_bytes) && free_bytes < device->free_bytes)
		device->free_bytes = free_bytes;
}

static void begin_device(struct top_device *device)
{
	device->used_bytes = device->cached_bytes = device->pending_bytes = device->returning_bytes = 0;
	device->held_bytes = device->outside_bytes = 0;
	device->free_bytes = UINT64_MAX;
	device->is_seen = false;
}

static void end_device(struct top_device *device)
{
	uint64_t taken = 0;

	if (device->free_bytes <= device->is.total_bytes)
		taken = device->is.total_bytes - device->free_bytes;
	device->outside_bytes = taken > device->held_bytes ? taken - device->held_bytes : 0;
	device->history[device->n_samples++ % TOP_HISTORY] =
		(struct top_sample){.used_bytes = device->used_bytes, .held_bytes = device->held_bytes};
}

static int compare_devices(const void *a, const void *b)
{
	const struct top_device *one = a, *other = b;

	return stat_device_compare(&one->is, &other->is);
}

/* Marks devices that have the same number. They are neighbours, because the devices are sorted. */
static void find_namesakes(struct top_device *devices, size_t n)
{
	for (size_t i = 0; i < n; i++)
		devices[i].has_namesake = (i && devices[i - 1].is.index == devices[i].is.index) ||
					  (i + 1 < n && devices[i + 1].is.index == devices[i].is.index);
}

static void take_devices(struct top_model *model)
{
	size_t n = 0;

	for (size_t i = 0; i < model->n_devices; i++)
		begin_device(&model->devices[i]);
	for (size_t i = 0; i < model->n_rows; i++) {
		const json_t *devices = json_object_get(model->rows[i].reply, "devices"), *device;
		size_t k;

		json_array_foreach(devices, k, device)
			add_device(model, device);
	}
	for (size_t i = 0; i < model->n_devices; i++) {
		if (!model->devices[i].is_seen)
			continue;
		end_device(&model->devices[i]);
		if (n++ != i)
			model->devices[n - 1] = model->devices[i];
	}
	model->n_devices = n;
	qsort(model->devices, n, sizeof(*model->devices), compare_devices);
	find_namesakes(model->devices, n);
}

void top_model_ask(struct top_model *model, const struct stat_options *options)
{
	struct stat_question question = {
		.request = "status\n",
		.schema = "status",
		.max_bytes = ANSWER_MAX,
		.timeout_ms = options->timeout_ms < TIMEOUT_MS ? options->timeout_ms : TIMEOUT_MS,
		.pids = options->pids,
		.n_pids = options->n_pids,
	};
	struct top_row *rows;
	size_t n;

	stat_survey_again(&model->survey, &question);
	n = model->survey.n_processes;
	rows = stat_alloc(calloc(n + 1, sizeof(*rows)));
	for (size_t i = 0; i < n; i++)
		take_row(&rows[i], &model->survey.processes[i], model);
	free_rows(model->rows, model->n_rows);
	model->rows = rows;
	model->n_rows = n;
	take_devices(model);
	top_model_arrange(model);
}

static bool passes(const struct top_row *row, const char *filter)
{
	char pid[16];

	snprintf(pid, sizeof(pid), "%d", (int)row->pid);
	return strcasestr(row->command, filter) || strcasestr(row->user, filter) || strcasestr(row->labels, filter) ||
	       strcmp(pid, filter) == 0;
}

const char *top_sort_name(enum top_sort sort)
{
	static const char *const names[] = {
		"used", "total", "cached", "hits", "allocations", "up", "pid", "user", "command"};

	return names[sort];
}

static int order(double a, double b)
{
	return (a > b) - (a < b);
}

/* Sorts the largest first, and names in ascending order. */
static int compare_by(const struct top_row *a, const struct top_row *b, enum top_sort sort)
{
	switch (sort) {
	case TOP_BY_USED:
		return order((double)b->used_bytes, (double)a->used_bytes);
	case TOP_BY_TOTAL:
		return order((double)b->total_bytes, (double)a->total_bytes);
	case TOP_BY_CACHED:
		return order((double)b->cached_bytes, (double)a->cached_bytes);
	case TOP_BY_HITS:
		return order(b->hit_rate, a->hit_rate);
	case TOP_BY_ALLOCS:
		return order(b->rates.allocs, a->rates.allocs);
	case TOP_BY_UP:
		return order((double)b->uptime_ns, (double)a->uptime_ns);
	case TOP_BY_USER:
		return strcmp(a->user, b->user);
	case TOP_BY_COMMAND:
		return strcmp(a->command, b->command);
	default:
		return 0;
	}
}

static int compare_rows(const void *a, const void *b, void *arg)
{
	const struct top_row *one = *(struct top_row *const *)a, *other = *(struct top_row *const *)b;
	const struct top_model *model = arg;
	int result = compare_by(one, other, model->sort);

	if (!result)
		result = order(one->pid, other->pid);
	return model->is_reversed ? -result : result;
}

void top_model_arrange(struct top_model *model)
{
	free(model->shown);
	model->shown = stat_alloc(calloc(model->n_rows + 1, sizeof(struct top_row *)));
	model->n_shown = 0;
	model->has_labels = false;
	for (size_t i = 0; i < model->n_rows; i++) {
		struct top_row *row = &model->rows[i];

		if (*model->filter && !passes(row, model->filter))
			continue;
		model->shown[model->n_shown++] = row;
		model->has_labels = model->has_labels || *row->labels;
	}
	qsort_r(model->shown, model->n_shown, sizeof(struct top_row *), compare_rows, model);
}
