/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Groups the devices of all processes. A use, which is a device of a process, is sorted by its group and by the device;
 * uses that are equal in both make one row. Job and pod are what a process says of itself, so a group never has
 * processes of two users: none can add its memory to the job of another user.
 */

#include "stat_list_by.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/answer/stat_device.h"
#include "tools/ask/stat_environ.h"
#include "tools/ask/stat_explain.h"
#include "tools/ask/stat_report.h"
#include "tools/text/stat_text.h"

enum { CELLS_MAX = 8, KEY_MAX = 132, KEY_COLUMNS_MIN = 12, OTHER_COLUMNS = 56 };

static const char *const words[STAT_N_LIST_BY] = {"job", "user", "pod"};

/* The job, user or pod that a process is counted under. */
struct owner {
	const struct stat_process *process;
	char name[KEY_MAX]; /* "8812", "ana" or "training/job-0"; "": the process does not say */
	char namespace[KEY_MAX], pod[KEY_MAX];
};

/* A device of a process, and then the sum of the equal ones. A process without a device has one use without one. */
struct use {
	const struct owner *owner; /* in a sum: of the process that has taken most */
	const json_t *answer;      /* NULL: the process has no device */
	struct stat_device device;
	bool has_namesake;
	size_t n_processes;
	uint64_t used_bytes, cached_bytes, unused_bytes, total_bytes, largest_bytes;
};

struct groups {
	enum stat_list_by by;
	struct owner *owners;
	size_t n_owners;
	struct use *uses;
	size_t n_uses, n_allocated;
};

bool stat_list_by_parse(const char *word, enum stat_list_by *ret)
{
	for (int i = 0; i < STAT_N_LIST_BY; i++) {
		*ret = (enum stat_list_by)i;
		if (strcmp(words[i], word) == 0)
			return true;
	}
	return false;
}

static void take_label(void *arg, const char *label, const char *value)
{
	struct owner *owner = arg;

	if (strcmp(label, "job") == 0)
		snprintf(owner->name, sizeof(owner->name), "%s", value);
	else if (strcmp(label, "pod") == 0)
		snprintf(owner->pod, sizeof(owner->pod), "%.63s", value);
	else if (strcmp(label, "namespace") == 0)
		snprintf(owner->namespace, sizeof(owner->namespace), "%.63s", value);
}

static void name_owner(struct owner *owner, enum stat_list_by by)
{
	char user[STAT_TEXT_MAX];

	if (by == STAT_LIST_BY_USER) {
		stat_explain_user(user, owner->process->uid);
		stat_clean(owner->name, sizeof(owner->name), user);
		return;
	}
	stat_environ_each_label(owner->process, take_label, owner);
	if (by == STAT_LIST_BY_POD)
		snprintf(owner->name, sizeof(owner->name), "%.63s%s%.63s", *owner->pod ? owner->namespace : "",
			*owner->pod && *owner->namespace ? "/" : "", owner->pod);
}

static void add_use(struct groups *groups, const struct use *use)
{
	if (groups->n_uses == groups->n_allocated) {
		groups->n_allocated = groups->n_allocated ? groups->n_allocated * 2 : 16;
		groups->uses = stat_alloc(reallocarray(groups->uses, groups->n_allocated, sizeof(*groups->uses)));
	}
	groups->uses[groups->n_uses++] = *use;
}

static void add_process(struct groups *groups, const struct stat_process *process)
{
	struct owner *owner = &groups->owners[groups->n_owners++];
	const json_t *answer;
	uint64_t seen = 0, index;
	size_t i;

	*owner = (struct owner){.process = process};
	name_owner(owner, groups->by);
	json_array_foreach(json_object_get(process->reply, "devices"), i, answer) {
		struct use use = {.owner = owner, .answer = answer, .n_processes = 1};

		if (!stat_reply_new_device(answer, &seen, &index))
			continue;
		stat_device_read(&use.device, answer);
		use.used_bytes = stat_reply_u64_or_0(answer, "used_bytes");
		use.cached_bytes = stat_reply_u64_or_0(answer, "cached_bytes");
		use.unused_bytes = stat_reply_u64_or_0(answer, "unused_bytes");
		use.total_bytes = stat_reply_u64_or_0(answer, "total_bytes");
		use.largest_bytes = use.total_bytes;
		add_use(groups, &use);
	}
	if (!seen)
		add_use(groups, &(struct use){.owner = owner, .n_processes = 1});
}

/* Processes that do not say what they belong to come last; "9" comes before "10". */
static int compare_owners(const struct owner *one, const struct owner *other)
{
	int order = !*one->name - !*other->name;

	order = order ? order : strverscmp(one->name, other->name);
	if (!order)
		order = (one->process->uid > other->process->uid) - (one->process->uid < other->process->uid);
	return order;
}

/* Equal devices come together, whatever number a process gives them. */
static int compare_uses(const void *a, const void *b)
{
	const struct use *one = a, *other = b;
	int order = compare_owners(one->owner, other->owner);

	order = order ? order : !one->answer - !other->answer;
	order = order ? order : strcmp(one->device.uuid, other->device.uuid);
	return order ? order : stat_device_compare(&one->device, &other->device);
}

static int compare_rows(const void *a, const void *b)
{
	const struct use *one = a, *other = b;
	int order = compare_owners(one->owner, other->owner);

	order = order ? order : !one->answer - !other->answer;
	return order ? order : stat_device_compare(&one->device, &other->device);
}

static bool is_same_row(const struct use *one, const struct use *other)
{
	return compare_owners(one->owner, other->owner) == 0 && !one->answer == !other->answer &&
	       stat_device_is_same(&one->device, &other->device);
}

static void add_bytes(uint64_t *sum, uint64_t bytes)
{
	if (__builtin_add_overflow(*sum, bytes, sum))
		*sum = UINT64_MAX;
}

static void merge_use(struct use *row, const struct use *use)
{
	row->n_processes++;
	add_bytes(&row->used_bytes, use->used_bytes);
	add_bytes(&row->cached_bytes, use->cached_bytes);
	add_bytes(&row->unused_bytes, use->unused_bytes);
	add_bytes(&row->total_bytes, use->total_bytes);
	if (use->device.index < row->device.index)
		row->device.index = use->device.index;
	if (use->total_bytes > row->largest_bytes) {
		row->largest_bytes = use->total_bytes;
		row->owner = use->owner;
	}
}

static int compare_devices(const void *a, const void *b)
{
	const struct use *const *one = a, *const *other = b;

	return stat_device_compare(&(*one)->device, &(*other)->device);
}

/* Marks the rows whose number is also that of another device in the table. */
static void find_namesakes(struct groups *groups)
{
	struct use **rows = stat_alloc(calloc(groups->n_uses + 1, sizeof(*rows)));
	size_t n = 0;

	for (size_t i = 0; i < groups->n_uses; i++)
		if (groups->uses[i].answer)
			rows[n++] = &groups->uses[i];
	qsort(rows, n, sizeof(*rows), compare_devices);
	for (size_t first = 0, end; first < n; first = end) {
		for (end = first; end < n && rows[end]->device.index == rows[first]->device.index; end++)
			;
		for (size_t i = first; i < end; i++)
			rows[i]->has_namesake = !stat_device_is_same(&rows[first]->device, &rows[end - 1]->device);
	}
	free(rows);
}

static void make_groups(struct groups *groups, const struct stat_survey *survey, enum stat_list_by by)
{
	size_t n = 0;

	*groups = (struct groups){.by = by};
	groups->owners = stat_alloc(calloc(survey->n_processes + 1, sizeof(*groups->owners)));
	for (size_t i = 0; i < survey->n_processes; i++)
		if (survey->processes[i].reply)
			add_process(groups, &survey->processes[i]);
	if (groups->n_uses)
		qsort(groups->uses, groups->n_uses, sizeof(*groups->uses), compare_uses);
	for (size_t i = 0; i < groups->n_uses; i++) {
		if (n && is_same_row(&groups->uses[n - 1], &groups->uses[i]))
			merge_use(&groups->uses[n - 1], &groups->uses[i]);
		else
			groups->uses[n++] = groups->uses[i];
	}
	groups->n_uses = n;
	if (n)
		qsort(groups->uses, n, sizeof(*groups->uses), compare_rows);
	find_namesakes(groups);
}

static void free_groups(struct groups *groups)
{
	free(groups->uses);
	free(groups->owners);
}

/* The rest of a line of 80 columns has room for all but the last column. */
static size_t key_columns(size_t width)
{
	if (!width || width >= OTHER_COLUMNS + STAT_COLUMN_MAX)
		return STAT_COLUMN_MAX;
	return width < OTHER_COLUMNS + KEY_COLUMNS_MIN ? KEY_COLUMNS_MIN : width - OTHER_COLUMNS;
}

/* Writes the name of a group. Of a long one it keeps the end, where pods of one job have their number. */
static void write_key(char key[static KEY_MAX], const char *name, size_t columns)
{
	const char *rest = name;

	while (stat_columns(rest) > columns - 2)
		do
			rest++;
		while ((*rest & 0xc0) == 0x80);
	if (!*name)
		name = "-";
	if (stat_columns(name) <= columns)
		snprintf(key, KEY_MAX, "%s", name);
	else
		snprintf(key, KEY_MAX, "..%.128s", rest);
}

static void add_row(struct stat_table *table, const struct groups *groups, const struct use *row, size_t columns)
{
	const char *cells[CELLS_MAX];
	char key[KEY_MAX], user[STAT_TEXT_MAX], device[STAT_DEVICE_NAME_MAX] = "-", processes[STAT_TEXT_MAX];
	char used[STAT_TEXT_MAX] = "-", cached[STAT_TEXT_MAX] = "-", total[STAT_TEXT_MAX] = "-", largest[256];
	size_t n = 0;

	write_key(key, row->owner->name, columns);
	stat_explain_user(user, row->owner->process->uid);
	snprintf(processes, sizeof(processes), "%zu", row->n_processes);
	snprintf(largest, sizeof(largest), "%d %.200s", (int)row->owner->process->pid,
		stat_reply_text(row->owner->process->reply, "command"));
	if (row->answer) {
		stat_device_name(device, &row->device, row->has_namesake);
		stat_bytes(used, row->used_bytes);
		stat_bytes(cached, row->cached_bytes);
		stat_bytes(total, row->total_bytes);
	}
	cells[n++] = key;
	if (groups->by != STAT_LIST_BY_USER)
		cells[n++] = user;
	cells[n++] = device;
	cells[n++] = processes;
	cells[n++] = used;
	cells[n++] = cached;
	cells[n++] = total;
	cells[n] = largest;
	stat_table_add(table, cells);
}

void stat_list_by_show(const struct stat_survey *survey, enum stat_list_by by)
{
	static const char *const titles[STAT_N_LIST_BY] = {"<JOB", "<USER", "<POD"};
	const char *headings[CELLS_MAX] = {titles[by]};
	struct stat_table *table;
	struct groups groups;
	size_t n = 1;

	if (by != STAT_LIST_BY_USER)
		headings[n++] = "<USER";
	headings[n++] = "<DEVICE";
	headings[n++] = ">PROCS";
	headings[n++] = ">USED";
	headings[n++] = ">CACHED";
	headings[n++] = ">TOTAL";
	headings[n++] = "<LARGEST PROCESS";
	make_groups(&groups, survey, by);
	table = stat_table_new(headings, n);
	for (size_t i = 0; i < groups.n_uses; i++)
		add_row(table, &groups, &groups.uses[i], key_columns(stat_width()));
	if (groups.n_uses)
		stat_table_print(table, stat_width());
	stat_table_free(table);
	free_groups(&groups);
}

static json_t *text_or_null(const char *text)
{
	return *text ? json_string(text) : json_null();
}

/* Makes a group, without its processes and devices. */
static json_t *new_group(enum stat_list_by by, const struct owner *owner)
{
	json_t *group = stat_alloc(json_object());
	char user[STAT_TEXT_MAX], clean[STAT_TEXT_MAX];

	stat_explain_user(user, owner->process->uid);
	stat_clean(clean, sizeof(clean), user);
	if (by == STAT_LIST_BY_JOB)
		json_object_set_new(group, "job", text_or_null(owner->name));
	if (by == STAT_LIST_BY_POD) {
		json_object_set_new(group, "namespace", text_or_null(*owner->pod ? owner->namespace : ""));
		json_object_set_new(group, "pod", text_or_null(owner->pod));
	}
	json_object_set_new(group, "uid", json_integer((json_int_t)owner->process->uid));
	json_object_set_new(group, "user", json_string(clean));
	json_object_set_new(group, "pids", json_array());
	json_object_set_new(group, "devices", json_array());
	return group;
}

static json_t *bytes_of(uint64_t bytes)
{
	return json_integer((json_int_t)(bytes > INT64_MAX ? INT64_MAX : bytes));
}

static json_t *new_device(const struct use *row)
{
	return stat_alloc(json_pack("{s:I, s:o, s:I, s:o, s:o, s:o, s:o}", "index", (json_int_t)row->device.index,
		"uuid", text_or_null(row->device.uuid), "n_processes", (json_int_t)row->n_processes, "used_bytes",
		bytes_of(row->used_bytes), "cached_bytes", bytes_of(row->cached_bytes), "unused_bytes",
		bytes_of(row->unused_bytes), "total_bytes", bytes_of(row->total_bytes)));
}

static int compare_owner_entries(const void *a, const void *b)
{
	int order = compare_owners(a, b);
	const struct owner *one = a, *other = b;

	return order ? order : (one->process->pid > other->process->pid) - (one->process->pid < other->process->pid);
}

/* Adds the pids of a group, whose owners are the next ones in the sorted list. Returns the index behind them. */
static size_t add_pids(json_t *group, const struct owner *owners, size_t n, size_t i, const struct owner *wanted)
{
	json_t *pids = json_object_get(group, "pids");

	for (; i < n && compare_owners(&owners[i], wanted) == 0; i++)
		json_array_append_new(pids, json_integer((json_int_t)owners[i].process->pid));
	return i;
}

void stat_list_by_json(const struct stat_survey *survey, enum stat_list_by by)
{
	json_t *list = stat_alloc(json_array()), *group = NULL;
	const struct owner *last = NULL;
	struct owner *owners;
	struct groups groups;
	size_t at = 0;

	make_groups(&groups, survey, by);
	/* The rows point into the list of the groups, so a copy is sorted. */
	owners = stat_alloc(calloc(groups.n_owners + 1, sizeof(*owners)));
	if (groups.n_owners)
		memcpy(owners, groups.owners, groups.n_owners * sizeof(*owners));
	qsort(owners, groups.n_owners, sizeof(*owners), compare_owner_entries);
	for (size_t i = 0; i < groups.n_uses; i++) {
		const struct use *row = &groups.uses[i];

		if (!last || compare_owners(last, row->owner) != 0) {
			group = new_group(by, row->owner);
			at = add_pids(group, owners, groups.n_owners, at, row->owner);
			json_array_append_new(list, group);
			last = row->owner;
		}
		if (row->answer)
			json_array_append_new(json_object_get(group, "devices"), new_device(row));
	}
	free(owners);
	free_groups(&groups);
	stat_report_list(survey, "list-by", "groups", list);
}
