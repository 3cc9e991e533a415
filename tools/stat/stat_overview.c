/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* The screen of gpupool-stat without arguments if there are several processes. */

#include "stat_overview.h"

#include <stdio.h>
#include <stdlib.h>

#include "tools/answer/stat_device.h"
#include "tools/answer/stat_rate.h"
#include "tools/ask/stat_environ.h"
#include "tools/ask/stat_explain.h"
#include "tools/text/stat_text.h"

enum { DEVICES_MAX = 64, USER_MAX = 8, LABELS_MAX = 12 };

struct device {
	struct stat_device is; /* with the lowest number that a process gives it */
	bool has_namesake;
	uint64_t used_bytes, cached_bytes, total_bytes;
	uint64_t free_bytes; /* UINT64_MAX: unknown */
};

/* A row: a device of a process, or a process without a device. */
struct use {
	const struct stat_process *process;
	const json_t *answer; /* NULL: the process has no device */
	size_t device;        /* index; DEVICES_MAX: none */
};

struct overview {
	struct device *devices;
	size_t n_devices, n_left_out;
	struct use *uses;
	size_t n_uses, n_allocated;
	bool has_labels, has_rates;
};

enum { CELLS_MAX = 9 };

static void add(uint64_t *sum, uint64_t bytes)
{
	if (__builtin_add_overflow(*sum, bytes, sum))
		*sum = UINT64_MAX;
}

/* Returns the index of a device, which is added if it is new; DEVICES_MAX: there are too many. */
static size_t find_device(struct overview *overview, const struct stat_device *wanted)
{
	size_t i = 0;

	while (i < overview->n_devices && !stat_device_is_same(&overview->devices[i].is, wanted))
		i++;
	if (i == overview->n_devices && i < DEVICES_MAX)
		overview->devices[overview->n_devices++] = (struct device){.is = *wanted, .free_bytes = UINT64_MAX};
	return i;
}

static void add_to_device(struct device *device, const json_t *answer, uint64_t index)
{
	uint64_t free_bytes;

	if (index < device->is.index)
		device->is.index = index;
	add(&device->used_bytes, stat_reply_u64_or_0(answer, "used_bytes"));
	add(&device->cached_bytes, stat_reply_u64_or_0(answer, "cached_bytes"));
	add(&device->total_bytes, stat_reply_u64_or_0(answer, "total_bytes"));
	/* Processes answer one after another; the smallest value is the newest, or close to it. */
	if (stat_reply_u64(answer, "device_free_bytes", &free_bytes) && free_bytes < device->free_bytes)
		device->free_bytes = free_bytes;
}

static void add_use(struct overview *overview, const struct use *use)
{
	if (overview->n_uses == overview->n_allocated) {
		overview->n_allocated = overview->n_allocated ? overview->n_allocated * 2 : 16;
		overview->uses =
			stat_alloc(reallocarray(overview->uses, overview->n_allocated, sizeof(*overview->uses)));
	}
	overview->uses[overview->n_uses++] = *use;
}

static void add_process(struct overview *overview, const struct stat_process *process)
{
	const json_t *answer;
	uint64_t seen = 0, index;
	size_t i;

	json_array_foreach(json_object_get(process->reply, "devices"), i, answer) {
		struct use use = {.process = process, .answer = answer};
		struct stat_device wanted;

		if (!stat_reply_new_device(answer, &seen, &index))
			continue;
		stat_device_read(&wanted, answer);
		use.device = find_device(overview, &wanted);
		if (use.device == DEVICES_MAX) {
			overview->n_left_out++;
			continue;
		}
		add_to_device(&overview->devices[use.device], answer, index);
		add_use(overview, &use);
	}
	if (!seen)
		add_use(overview, &(struct use){.process = process, .device = DEVICES_MAX});
}

static int compare_uses(const void *a, const void *b, void *arg)
{
	const struct overview *overview = arg;
	const struct use *one = a, *other = b;

	if (one->device != other->device) {
		if (one->device == DEVICES_MAX || other->device == DEVICES_MAX)
			return one->device == DEVICES_MAX ? 1 : -1;
		int order =
			stat_device_compare(&overview->devices[one->device].is, &overview->devices[other->device].is);

		return order ? order : one->device < other->device ? -1 : 1;
	}
	return (one->process->pid > other->process->pid) - (one->process->pid < other->process->pid);
}

static void find_namesakes(struct overview *overview)
{
	for (size_t i = 0; i < overview->n_devices; i++)
		for (size_t k = 0; k < overview->n_devices; k++)
			if (i != k && overview->devices[i].is.index == overview->devices[k].is.index)
				overview->devices[i].has_namesake = true;
}

static void write_bytes(char text[static STAT_TEXT_MAX], const struct use *use, const char *key)
{
	if (use->answer)
		stat_bytes(text, stat_reply_u64_or_0(use->answer, key));
	else
		snprintf(text, STAT_TEXT_MAX, "-");
}

static void write_device(char text[static STAT_DEVICE_NAME_MAX], const struct overview *overview, size_t i)
{
	if (i < overview->n_devices)
		stat_device_name(text, &overview->devices[i].is, overview->devices[i].has_namesake);
	else
		snprintf(text, STAT_DEVICE_NAME_MAX, "-");
}

/* Adds a row, whose last cells are only there if their columns are. */
static void add_cells(struct stat_table *table, const struct overview *overview, const char *const *first,
	const char *rate, const char *labels, const char *last)
{
	const char *cells[CELLS_MAX];
	size_t n = 0;

	for (; n < 6; n++)
		cells[n] = first[n];
	if (overview->has_rates)
		cells[n++] = rate;
	if (overview->has_labels)
		cells[n++] = labels;
	cells[n] = last;
	stat_table_add(table, cells);
}

static double allocs_per_second(const struct use *use)
{
	const json_t *before = use->process->before;
	struct stat_rates rates;

	stat_rates_of(&rates, use->answer, stat_rate_device_before(before, use->answer),
		stat_rate_elapsed_ns(use->process->reply, before));
	return rates.allocs;
}

static void add_row(struct stat_table *table, const struct overview *overview, const struct use *use)
{
	char pid[STAT_TEXT_MAX], user[STAT_TEXT_MAX], clean[STAT_TEXT_MAX], device[STAT_DEVICE_NAME_MAX];
	char used[STAT_TEXT_MAX], cached[STAT_TEXT_MAX], total[STAT_TEXT_MAX], labels[STAT_COLUMN_MAX];
	char rate[STAT_TEXT_MAX];
	const char *const first[] = {pid, clean, device, used, cached, total};

	snprintf(pid, sizeof(pid), "%d", (int)use->process->pid);
	stat_explain_user(user, use->process->uid);
	stat_clean(clean, sizeof(clean), user);
	clean[stat_cut(clean, USER_MAX)] = '\0';
	write_device(device, overview, use->device);
	write_bytes(used, use, "used_bytes");
	write_bytes(cached, use, "cached_bytes");
	write_bytes(total, use, "total_bytes");
	stat_rate_text(rate, allocs_per_second(use));
	stat_environ_labels(labels, sizeof(labels), use->process);
	labels[stat_cut(labels, LABELS_MAX)] = '\0';
	add_cells(table, overview, first, rate, labels, stat_reply_text(use->process->reply, "command"));
}

/* Adds the sum of a device: that of the rows from `first` to `end`. */
static void add_sum(struct stat_table *table, const struct overview *overview, size_t first, size_t end)
{
	const struct device *device = &overview->devices[overview->uses[first].device];
	char name[STAT_DEVICE_NAME_MAX], used[STAT_TEXT_MAX], cached[STAT_TEXT_MAX], total[STAT_TEXT_MAX];
	char free_text[STAT_TEXT_MAX], size[STAT_TEXT_MAX], rate[STAT_TEXT_MAX], note[2 * STAT_TEXT_MAX + 16] = "";
	const char *const cells[] = {"all", "", name, used, cached, total};
	double allocs = 0;

	for (size_t i = first; i < end; i++)
		allocs = allocs < 0 || allocs_per_second(&overview->uses[i]) < 0
				 ? -1
				 : allocs + allocs_per_second(&overview->uses[i]);
	write_device(name, overview, overview->uses[first].device);
	stat_bytes(used, device->used_bytes);
	stat_bytes(cached, device->cached_bytes);
	stat_bytes(total, device->total_bytes);
	stat_rate_text(rate, allocs);
	if (device->free_bytes != UINT64_MAX && device->is.total_bytes) {
		stat_bytes(free_text, device->free_bytes);
		stat_bytes(size, device->is.total_bytes);
		snprintf(note, sizeof(note), "%s free of %s", free_text, size);
	}
	add_cells(table, overview, cells, rate, "", note);
}

static void print_table(const struct overview *overview)
{
	static const char *const first[] = {">PID", "<USER", "<DEVICE", ">USED", ">CACHED", ">TOTAL"};
	const char *headings[CELLS_MAX];
	struct stat_table *table;
	size_t n = 0, begin = 0;

	for (; n < 6; n++)
		headings[n] = first[n];
	if (overview->has_rates)
		headings[n++] = ">ALLOC/S";
	if (overview->has_labels)
		headings[n++] = "<JOB";
	headings[n++] = "<COMMAND";
	table = stat_table_new(headings, n);
	for (size_t i = 0; i < overview->n_uses; i++) {
		add_row(table, overview, &overview->uses[i]);
		if (i + 1 < overview->n_uses && overview->uses[i + 1].device == overview->uses[i].device)
			continue;
		if (overview->uses[i].device != DEVICES_MAX)
			add_sum(table, overview, begin, i + 1);
		begin = i + 1;
	}
	stat_table_print(table, stat_width());
	stat_table_free(table);
}

void stat_overview_show(const struct stat_survey *survey)
{
	struct overview overview = {
		.devices = stat_alloc(calloc(DEVICES_MAX, sizeof(*overview.devices))),
		.has_rates = survey->searched_ns != 0,
	};
	char labels[STAT_COLUMN_MAX];

	for (size_t i = 0; i < survey->n_processes; i++) {
		if (!survey->processes[i].reply)
			continue;
		stat_environ_labels(labels, sizeof(labels), &survey->processes[i]);
		overview.has_labels = overview.has_labels || *labels;
		add_process(&overview, &survey->processes[i]);
	}
	qsort_r(overview.uses, overview.n_uses, sizeof(*overview.uses), compare_uses, &overview);
	find_namesakes(&overview);
	print_table(&overview);
	if (overview.n_left_out)
		printf("and %zu uses of more devices; gpupool-stat list adds them up\n", overview.n_left_out);
	if (stat_width())
		puts("gpupool-stat PID shows one process with all its counters.");
	free(overview.uses);
	free(overview.devices);
}
