/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "stat_metrics.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "stat_pages.h"
#include "tools/answer/stat_sleep.h"
#include "tools/answer/stat_spill.h"
#include "tools/ask/stat_environ.h"
#include "tools/ask/stat_explain.h"
#include "tools/ask/stat_report.h"
#include "tools/ask/stat_watch.h"

enum {
	ANSWER_MAX = 1 << 20,
	ROUNDS_MAX = 16,
	ROUND_NAME_MAX = 32,
	REASONS_MAX = 32,
	REGION_NAME_MAX = 64,
	REGIONS_MAX = 64, /* the most that a process can have */
	LABEL_MAX = 256,
	LABELS_MAX = 512,
	UUID_MAX = 48,
	NAME_MAX_BYTES = 96,
	ID_MAX = 64,
	/* Bounds of the series about memory, for a foreign user and for all of them. */
	USER_SERIES_MAX = 8000,
	FOREIGN_SERIES_MAX = 64000,
	USER_SERIES_MAX_ALL = 50000, /* with --collect=all */
	FOREIGN_SERIES_MAX_ALL = 200000,
	DEVICES_MAX = 256, /* of the node */
};

#define NS_PER_SECOND UINT64_C(1000000000)

enum type { GAUGE, COUNTER, INFO };

/* A member of an answer to "status", and the metric that is made of it. */
struct metric {
	const char *member, *name;
	enum type type;
	const char *unit, *help;
	bool is_pinned;
};

static const struct metric metrics[] = {
#define STAT(member, name, type, unit, help) {#member, #name, type, #unit, help ".", false},
#include "pool/stats.def"
#define METRIC(member, name, type, unit, help) {#member, #name, type, #unit, help ".", false},
#include "metrics.def"
};

static const struct metric round_metrics[] = {
	{"count", "retries", COUNTER, "", "Times that an allocation went through a retry round."},
	{"gained_bytes", "retry_yielded", COUNTER, "bytes", "Memory that retry rounds made available."},
	{"ns", "retry", COUNTER, "seconds", "Time spent in retry rounds."},
};

static const struct metric step_metrics[] = {
	{"count", "step_allocs", COUNTER, "", "Allocations served by a step of the ladder."},
	{"ns", "step", COUNTER, "seconds", "Time spent in a step that calls the driver or waits."},
};

/* For each reason that has occurred, with --collect=all. */
static const struct metric left_metric = {"count", "stream_allocations_left", COUNTER, "",
	"Allocations in stream order (cudaMallocAsync) that were left to the driver, for a reason."};

/* Metrics of processes that check memory for invalid writes (GPUPOOL_DEBUG). */
static const struct metric debug_metrics[] = {
	{"errors", "debug_errors", COUNTER, "", "Invalid writes found: past a block, or after its free."},
	{"checks", "debug_checks", COUNTER, "", "Checks of memory that must not be written to."},
	{"skipped", "debug_skipped", COUNTER, "", "Checks of such memory that were not possible."},
	{"ns", "debug", COUNTER, "seconds", "Time that memory debugging took in the program."},
};

/* Metrics of each region on a device. */
static const struct metric region_metrics[] = {
	{"used_bytes", "region_used", GAUGE, "bytes", "Memory in blocks that the program holds, of a region."},
	{"cached_bytes", "region_cached", GAUGE, "bytes", "Memory of a region that is free and ready for reuse in it."},
	{"pending_bytes", "region_pending", GAUGE, "bytes",
		"Memory freed in a region that the GPU may not be done with."},
};

/* Metrics of a group that shares a limit (GPUPOOL_LIMIT_GROUP): once for each device, whatever its members say. */
static const struct metric group_metrics[] = {
	{"limit_bytes", "group_limit", GAUGE, "bytes", "Limit on the memory of a group of processes on a device."},
	{"reserved_bytes", "group_reserved", GAUGE, "bytes", "Memory that the processes of a group hold on a device."},
};

/*
 * Metrics of processes that are not awake, or have GPUPOOL_SLEEP set: the first one of each of their devices, the
 * others of the process.
 */
static const struct metric asleep_metric = {"asleep_bytes", "asleep", GAUGE, "bytes",
	"Memory of the pool that is given to the driver, since the process is asleep."};
static const struct metric sleep_metrics[] = {
	{"host_bytes", "asleep_host", GAUGE, "bytes", "Host memory with the content of memory that is asleep."},
	{"empty_bytes", "asleep_empty", GAUGE, "bytes", "Memory that is asleep and had no content to keep."},
	{"asleep_ns", "asleep", GAUGE, "seconds", "Time since the process fell asleep; 0 if it is awake."},
	{"deep_ns", "deep_asleep", GAUGE, "seconds", "Time since CUDA calls wait in deep sleep; 0 if they do not."},
	{"sleeps", "sleeps", COUNTER, "", "Times that the process fell asleep."},
	{"wakes", "wakes", COUNTER, "", "Times that the process woke."},
};

/* Metrics of processes whose memory went to the host (GPUPOOL_SPILL), or could not. */
static const struct metric spill_metrics[] = {
	{"out_bytes", "spill_out", COUNTER, "bytes", "Memory moved to the host because the device was full."},
	{"back_bytes", "spill_back", COUNTER, "bytes", "Memory moved back from the host to the device."},
	{"held_ns", "spill_held", COUNTER, "seconds", "Time in which work waited while memory moved."},
	{"refusals", "spill_refusals", COUNTER, "", "Allocations for which no memory could move to the host."},
};

static const struct metric processes_metric = {
	NULL, "processes", GAUGE, "", "Processes with a control socket, whether they answer or not."};
static const struct metric incomplete_metric = {NULL, "incomplete", GAUGE, "",
	"1 if processes were left out, for lack of time or because there were too many; otherwise 0."};
static const struct metric up_metric = {NULL, "up", GAUGE, "", "1 if the process has answered, 0 if it has not."};
static const struct metric info_metric = {
	NULL, "process", INFO, "", "User, command, pool type, version and job of the process."};
static const struct metric start_metric = {
	NULL, "process_start_time", GAUGE, "seconds", "Start of the process, in seconds since 1970."};

/* The members of a device, and of pinned memory, that are collected without --collect=all. */
static const char *const basic_members[] = {
	"used_bytes", "cached_bytes", "total_bytes", "peak_total_bytes", "limit_bytes", "hits", "misses", "ooms"};
/* The same, of the devices on which it is not 0. */
static const char *const rare_members[] = {"spilled_bytes"};
static const char *const basic_pinned_members[] = {"used_bytes", "total_bytes"};

/* The members that are the same for all processes on a device. */
static const char *const device_members[] = {"device_total_bytes", "device_free_bytes"};

#define LENGTH(a) (sizeof(a) / sizeof(*(a)))

static const struct metric node_processes_metric = {
	NULL, "node_processes", COUNTER, "", "Processes that have been seen."};
static const struct metric user_ooms_metric = {
	NULL, "user_out_of_memory_errors", COUNTER, "", "Out-of-memory errors that reached programs of a user."};

/* A process as the metrics show it. */
struct shown_process {
	const struct stat_process *process;
	const json_t *answer; /* the last one, which may be older than this survey; NULL: none */
	bool is_cut;          /* its memory is left out */
	char id[ID_MAX];      /* the labels that tell it apart from other processes */
};

struct writer {
	FILE *out;
	struct stat_metrics_form form;
	const struct stat_survey *survey;
	struct shown_process *processes;
	size_t n_processes;
};

static const char *suffix_of(enum type type)
{
	static const char *const suffixes[] = {[GAUGE] = "", [COUNTER] = "_total", [INFO] = "_info"};

	return suffixes[type];
}

static const char *type_name(const struct writer *w, enum type type)
{
	static const char *const names[] = {[GAUGE] = "gauge", [COUNTER] = "counter", [INFO] = "info"};

	return w->form.format == STAT_METRICS_PROMETHEUS && type == INFO ? "gauge" : names[type];
}

static bool is_among(const char *member, const char *const *members, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (strcmp(members[i], member) == 0)
			return true;
	return false;
}

static bool is_of_device(const struct metric *m)
{
	return is_among(m->member, device_members, LENGTH(device_members));
}

/* Metrics of pinned memory have names of their own: the sum of device and host memory means nothing. */
static void make_name(char name[static NAME_MAX_BYTES], const struct metric *m)
{
	snprintf(name, NAME_MAX_BYTES, "gpupool_%s%s%s%s", m->is_pinned ? "pinned_" : "", m->name, *m->unit ? "_" : "",
		m->unit);
}

/* A family is named without the suffix of its samples in OpenMetrics, and with it in Prometheus' own format. */
static void begin_family(const struct writer *w, const struct metric *m)
{
	char name[NAME_MAX_BYTES];
	bool is_openmetrics = w->form.format == STAT_METRICS_OPENMETRICS;
	const char *suffix = is_openmetrics ? "" : suffix_of(m->type);

	make_name(name, m);
	fprintf(w->out, "# TYPE %s%s %s\n", name, suffix, type_name(w, m->type));
	if (is_openmetrics && *m->unit)
		fprintf(w->out, "# UNIT %s %s\n", name, m->unit);
	fprintf(w->out, "# HELP %s%s %s\n", name, suffix, m->help);
}

/* Escapes the value of a label, so that nothing in it can end the label. */
static const char *escape(char escaped[static LABEL_MAX], const char *text)
{
	char clean[LABEL_MAX / 2];
	size_t n = 0;

	stat_clean(clean, sizeof(clean), text);
	for (const char *c = clean; *c; c++) {
		if (*c == '"' || *c == '\\')
			escaped[n++] = '\\';
		escaped[n++] = *c;
	}
	escaped[n] = '\0';
	return escaped;
}

static void write_sample(const struct writer *w, const struct metric *m, const char *labels, uint64_t value)
{
	char name[NAME_MAX_BYTES];

	make_name(name, m);
	fprintf(w->out, "%s%s%s ", name, suffix_of(m->type), labels);
	if (strcmp(m->unit, "seconds") == 0)
		fprintf(w->out, "%" PRIu64 ".%09" PRIu64 "\n", value / NS_PER_SECOND, value % NS_PER_SECOND);
	else
		fprintf(w->out, "%" PRIu64 "\n", value);
}

/* Returns true if the number of a process is one of this pid namespace. */
static bool is_pid_visible(const struct stat_process *process)
{
	uint64_t start_ticks;
	char state;

	return process->client.peer_pid > 0 ||
	       (gp_ctl_process_stat(process->pid, &start_ticks, &state) == 0 && start_ticks == process->start_ticks);
}

static const struct shown_process *find_id(const struct writer *w, const char *id)
{
	for (size_t i = w->n_processes;
		i-- && w->processes[i].process->pid == w->processes[w->n_processes].process->pid;)
		if (strcmp(w->processes[i].id, id) == 0)
			return &w->processes[i];
	return NULL;
}

/*
 * Writes the labels of a process. A number that is visible here belongs to one process. Processes of other pid
 * namespaces, such as those of two containers, may have the same number, so their start time is added. Returns false
 * for another socket of a process that is shown already.
 */
static bool make_id(const struct writer *w, struct shown_process *shown)
{
	const struct stat_process *process = shown->process;

	snprintf(shown->id, ID_MAX, "pid=\"%d\"", (int)process->pid);
	if (is_pid_visible(process))
		return !find_id(w, shown->id);
	snprintf(shown->id, ID_MAX, "pid=\"%d\",start=\"%" PRIu64 "\"", (int)process->pid, process->start_ticks);
	for (unsigned nth = 2; find_id(w, shown->id); nth++)
		snprintf(shown->id, ID_MAX, "pid=\"%d\",start=\"%" PRIu64 "-%u\"", (int)process->pid,
			process->start_ticks, nth);
	return true;
}

/* Collects the processes to show. Those of one pid are next to each other. */
static void collect(struct writer *w)
{
	const struct stat_survey *survey = w->survey;

	w->processes = stat_alloc(calloc(survey->n_processes + 1, sizeof(*w->processes)));
	for (size_t i = 0; i < survey->n_processes; i++) {
		const struct stat_process *process = &survey->processes[i];
		struct shown_process *shown = &w->processes[w->n_processes];

		*shown = (struct shown_process){process, process->reply ? process->reply : process->before, false, ""};
		w->n_processes += make_id(w, shown);
	}
}

/* Writes ',UUID="GPU-1a2b3c4d-..."', or nothing if the uuid is unknown or not a word. */
static const char *write_uuid(char text[static LABEL_MAX], const json_t *device)
{
	const char *uuid = json_string_value(json_object_get(device, "uuid"));
	size_t length = uuid ? strspn(uuid, "0123456789-abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ") : 0;

	text[0] = '\0';
	if (length && length <= UUID_MAX && !uuid[length])
		snprintf(text, LABEL_MAX, ",UUID=\"%.*s\"", UUID_MAX, uuid);
	return text;
}

static size_t count_bounded(const json_t *memory, const char *key, size_t max)
{
	size_t n = json_array_size(json_object_get(memory, key));

	return n < max ? n : max;
}

/* Returns an upper bound for the number of series about the memory of a process. */
static size_t count_series(const json_t *reply, bool is_all)
{
	const json_t *devices = json_object_get(reply, "devices"), *pinned = json_object_get(reply, "pinned"), *device;
	size_t n_rounds = count_bounded(pinned, "retries", ROUNDS_MAX), n_memories = 1, n_regions = 0, n_sleep = 0, i;
	size_t n_steps = count_bounded(pinned, "steps", ROUNDS_MAX);
	size_t n_rare = 0;
	uint64_t seen = 0, index;

	json_array_foreach(devices, i, device) {
		if (!stat_reply_new_device(device, &seen, &index))
			continue;
		n_memories++;
		for (size_t k = 0; k < LENGTH(rare_members); k++)
			n_rare += stat_reply_u64_or_0(device, rare_members[k]) != 0;
		n_rounds += count_bounded(device, "retries", ROUNDS_MAX);
		n_steps += count_bounded(device, "steps", ROUNDS_MAX);
		n_regions += count_bounded(device, "by_region", REGIONS_MAX);
	}
	if (stat_sleep_is_of_interest(reply))
		n_sleep = n_memories + LENGTH(sleep_metrics);
	if (stat_spill_is_of_interest(reply))
		n_sleep += LENGTH(spill_metrics);
	if (!is_all)
		return n_memories * LENGTH(basic_members) + n_sleep + n_rare;
	return n_sleep + count_bounded(json_object_get(reply, "async"), "left", REASONS_MAX) +
	       n_memories * sizeof(metrics) / sizeof(*metrics) +
	       n_rounds * sizeof(round_metrics) / sizeof(*round_metrics) +
	       n_steps * sizeof(step_metrics) / sizeof(*step_metrics) +
	       n_regions * sizeof(region_metrics) / sizeof(*region_metrics);
}

struct user_series {
	uid_t uid;
	size_t n;
};

static struct user_series *find_user(struct user_series *users, size_t *n_users, uid_t uid)
{
	size_t i = 0;

	while (i < *n_users && users[i].uid != uid)
		i++;
	if (i == *n_users)
		users[(*n_users)++] = (struct user_series){.uid = uid};
	return &users[i];
}

/* Bounds the series of each foreign user, so that no user can fill up a monitoring system. */
static void cut_series(struct writer *w, struct stat_survey *survey)
{
	struct user_series *users = stat_alloc(calloc(w->n_processes + 1, sizeof(*users)));
	size_t n_users = 0, n_all = 0;
	bool is_all = w->form.is_all;
	size_t user_max = is_all ? USER_SERIES_MAX_ALL : USER_SERIES_MAX;
	size_t foreign_max = is_all ? FOREIGN_SERIES_MAX_ALL : FOREIGN_SERIES_MAX;

	for (size_t i = 0; i < w->n_processes; i++) {
		struct shown_process *shown = &w->processes[i];
		size_t n = count_series(shown->answer, is_all);
		struct user_series *user;

		if (shown->process->uid == geteuid())
			continue;
		user = find_user(users, &n_users, shown->process->uid);
		shown->is_cut = user->n + n > user_max || n_all + n > foreign_max;
		survey->missed.n_series += shown->is_cut;
		user->n += shown->is_cut ? 0 : n;
		n_all += shown->is_cut ? 0 : n;
	}
	free(users);
}

/* Writes the samples of a metric for the memory of a device, or for pinned memory. */
typedef void (*write_memory_fn)(
	const struct writer *w, const struct metric *m, const json_t *memory, const char *labels);

/* is_shown: of the processes whose answer it accepts; NULL: of all. */
static void each_device_if(
	const struct writer *w, const struct metric *m, write_memory_fn write, bool (*is_shown)(const json_t *answer))
{
	char labels[LABELS_MAX], uuid[LABEL_MAX];

	for (size_t at = 0; at < w->n_processes; at++) {
		const struct shown_process *shown = &w->processes[at];
		const json_t *devices = json_object_get(shown->answer, "devices"), *device;
		uint64_t seen = 0, index;
		size_t i;

		if (shown->is_cut || (is_shown && !is_shown(shown->answer)))
			continue;
		json_array_foreach(devices, i, device) {
			if (!stat_reply_new_device(device, &seen, &index))
				continue;
			snprintf(labels, sizeof(labels), "%s,device=\"%" PRIu64 "\"%s", shown->id, index,
				write_uuid(uuid, device));
			write(w, m, device, labels);
		}
	}
}

static void each_device(const struct writer *w, const struct metric *m, write_memory_fn write)
{
	each_device_if(w, m, write, NULL);
}

static bool has_pinned(const struct writer *w, const struct shown_process *shown)
{
	const json_t *pinned = json_object_get(shown->answer, "pinned");

	return !shown->is_cut && (w->form.is_all || stat_reply_u64_or_0(pinned, "peak_total_bytes") ||
					 stat_reply_u64_or_0(pinned, "total_bytes"));
}

/* Writes a family of pinned memory: of the processes that use any, or with --collect=all of every process. */
static void write_pinned(const struct writer *w, const struct metric *of_device, write_memory_fn write)
{
	struct metric m = *of_device;

	m.is_pinned = true;
	begin_family(w, &m);
	for (size_t at = 0; at < w->n_processes; at++)
		if (has_pinned(w, &w->processes[at]))
			write(w, &m, json_object_get(w->processes[at].answer, "pinned"), w->processes[at].id);
}

/* Writes a family of the memory of processes, on devices and then pinned. */
static void write_family(const struct writer *w, const struct metric *m, write_memory_fn write)
{
	begin_family(w, m);
	each_device(w, m, write);
	write_pinned(w, m, write);
}

static void write_member(const struct writer *w, const struct metric *m, const json_t *memory, const char *labels)
{
	char braced[LABELS_MAX + 2];
	uint64_t value;

	if (!stat_reply_u64(memory, m->member, &value))
		return;
	snprintf(braced, sizeof(braced), "{%.*s}", LABELS_MAX - 1, labels);
	write_sample(w, m, braced, value);
}

static void write_member_but_0(const struct writer *w, const struct metric *m, const json_t *memory, const char *labels)
{
	if (stat_reply_u64_or_0(memory, m->member))
		write_member(w, m, memory, labels);
}

/* True if the member is not 0 on any device. */
static bool is_any(const struct writer *w, const struct metric *m)
{
	for (size_t at = 0; at < w->n_processes; at++) {
		const json_t *devices = json_object_get(w->processes[at].answer, "devices"), *device;
		size_t i;

		json_array_foreach(devices, i, device)
			if (!w->processes[at].is_cut && stat_reply_u64_or_0(device, m->member))
				return true;
	}
	return false;
}

/* Returns true if the name of a round is a word that no round before it has. */
static bool has_unique_name(const json_t *rounds, size_t nth)
{
	const char *name = stat_reply_text(json_array_get(rounds, nth), "name");
	size_t length = strspn(name, "abcdefghijklmnopqrstuvwxyz-_");

	if (name[length] || !length || length > ROUND_NAME_MAX)
		return false;
	for (size_t i = 0; i < nth; i++)
		if (strcmp(stat_reply_text(json_array_get(rounds, i), "name"), name) == 0)
			return false;
	return true;
}

/* Writes a sample for each element of an array, with its name as a label. */
static void write_named(
	const struct writer *w, const struct metric *m, const json_t *array, const char *labels, const char *label)
{
	char all[LABELS_MAX];
	uint64_t value;

	for (size_t i = 0; i < json_array_size(array) && i < ROUNDS_MAX; i++) {
		const json_t *element = json_array_get(array, i);

		if (!has_unique_name(array, i) || !stat_reply_u64(element, m->member, &value))
			continue;
		snprintf(all, sizeof(all), "{%.192s,%s=\"%.32s\"}", labels, label, stat_reply_text(element, "name"));
		write_sample(w, m, all, value);
	}
}

static void write_rounds(const struct writer *w, const struct metric *m, const json_t *memory, const char *labels)
{
	write_named(w, m, json_object_get(memory, "retries"), labels, "round");
}

static void write_steps(const struct writer *w, const struct metric *m, const json_t *memory, const char *labels)
{
	write_named(w, m, json_object_get(memory, "steps"), labels, "step");
}

/* Returns true if no region before it has the same name: two series of one name would make the metrics invalid. */
static bool has_unique_region_name(const json_t *regions, size_t nth)
{
	const char *name = stat_reply_text(json_array_get(regions, nth), "name");

	if (!json_is_string(json_object_get(json_array_get(regions, nth), "name")))
		return false;
	for (size_t i = 0; i < nth; i++)
		if (strncmp(stat_reply_text(json_array_get(regions, i), "name"), name, REGION_NAME_MAX) == 0)
			return false;
	return strlen(name) < REGION_NAME_MAX;
}

static void write_regions(const struct writer *w, const struct metric *m, const json_t *memory, const char *labels)
{
	const json_t *regions = json_object_get(memory, "by_region");
	char all[LABELS_MAX + LABEL_MAX], escaped[LABEL_MAX];
	uint64_t value;

	for (size_t i = 0; i < json_array_size(regions) && i < REGIONS_MAX; i++) {
		const json_t *region = json_array_get(regions, i);

		if (!has_unique_region_name(regions, i) || !stat_reply_u64(region, m->member, &value))
			continue;
		snprintf(all, sizeof(all), "{%.192s,region=\"%s\"}", labels,
			escape(escaped, stat_reply_text(region, "name")));
		write_sample(w, m, all, value);
	}
}

static void write_up(const struct writer *w)
{
	char labels[LABELS_MAX];

	begin_family(w, &up_metric);
	for (const struct shown_process *shown = w->processes; shown < w->processes + w->n_processes; shown++) {
		snprintf(labels, sizeof(labels), "{%s}", shown->id);
		write_sample(w, &up_metric, labels, shown->process->reply != NULL);
	}
}

/* Returns when the machine started, in nanoseconds since 1970; 0 if unknown. */
static uint64_t boot_time_ns(void)
{
	FILE *file = fopen("/proc/stat", "re");
	char line[256];
	uint64_t seconds = 0;

	while (file && fgets(line, sizeof(line), file))
		if (strncmp(line, "btime ", strlen("btime ")) == 0)
			seconds = strtoull(line + strlen("btime "), NULL, 10);
	if (file)
		fclose(file);
	return seconds * NS_PER_SECOND;
}

static void write_starts(const struct writer *w)
{
	uint64_t boot_ns = boot_time_ns(), tick_ns = NS_PER_SECOND / (uint64_t)sysconf(_SC_CLK_TCK);
	char labels[LABELS_MAX];

	begin_family(w, &start_metric);
	for (const struct shown_process *shown = w->processes; boot_ns && shown < w->processes + w->n_processes;
		shown++) {
		if (shown->process->start_ticks > UINT32_MAX * UINT64_C(100))
			continue; /* more than a century */
		snprintf(labels, sizeof(labels), "{%s}", shown->id);
		write_sample(w, &start_metric, labels, boot_ns + shown->process->start_ticks * tick_ns);
	}
}

static void write_debug(const struct writer *w, const struct metric *m)
{
	char labels[LABELS_MAX];
	uint64_t value;

	begin_family(w, m);
	for (const struct shown_process *shown = w->processes; shown < w->processes + w->n_processes; shown++) {
		snprintf(labels, sizeof(labels), "{%s}", shown->id);
		if (stat_reply_u64(json_object_get(shown->answer, "debug"), m->member, &value))
			write_sample(w, m, labels, value);
	}
}

/* Writes only the name of the program: its arguments may be secret, and metrics are widely readable. */
static void make_program(char program[static LABEL_MAX], const char *command)
{
	const char *end = command + strcspn(command, " "), *start = end;

	while (start > command && start[-1] != '/')
		start--;
	snprintf(program, LABEL_MAX, "%.*s", (int)(end - start), start);
}

/* Writes a label by the name that exporters of jobs and of GPUs use, so that queries can join them. */
static void write_job(void *arg, const char *label, const char *value)
{
	const struct writer *w = arg;
	char escaped[LABEL_MAX];

	fprintf(w->out, ",%s=\"%s\"", strcmp(label, "job") ? label : "hpc_job", escape(escaped, value));
}

static void write_infos(const struct writer *w)
{
	char program[LABEL_MAX], user[STAT_TEXT_MAX], a[LABEL_MAX], b[LABEL_MAX], c[LABEL_MAX], d[LABEL_MAX];

	begin_family(w, &info_metric);
	for (const struct shown_process *shown = w->processes; shown < w->processes + w->n_processes; shown++) {
		if (!shown->answer)
			continue;
		make_program(program, stat_reply_text(shown->answer, "command"));
		stat_explain_user(user, shown->process->uid);
		fprintf(w->out, "gpupool_process_info{%s,user=\"%s\",command=\"%s\",pool=\"%s\",version=\"%s\"",
			shown->id, escape(a, user), escape(b, program),
			escape(c, stat_reply_text(shown->answer, "pool")),
			escape(d, stat_reply_text(shown->answer, "version")));
		stat_environ_each_label(shown->process, write_job, (void *)w);
		fputs("} 1\n", w->out);
	}
}

static void write_node(const struct writer *w, const struct stat_node *node)
{
	const struct stat_node_counters *counters = stat_node_counters(node);
	char labels[LABELS_MAX], name[STAT_TEXT_MAX], escaped[LABEL_MAX];
	const struct stat_node_user *users;
	size_t n_users;

	begin_family(w, &node_processes_metric);
	write_sample(w, &node_processes_metric, "", counters->processes);
#define NODE(member, name, unit, help)                                                         \
	begin_family(w, &(const struct metric){NULL, #name, COUNTER, #unit, help ".", false}); \
	write_sample(w, &(const struct metric){NULL, #name, COUNTER, #unit, help ".", false}, "", counters->member);
#include "node.def"
	users = stat_node_users(node, &n_users);
	begin_family(w, &user_ooms_metric);
	for (size_t i = 0; i < n_users; i++) {
		stat_explain_user(name, users[i].uid);
		snprintf(labels, sizeof(labels), "{user=\"%s\"}", escape(escaped, name));
		write_sample(w, &user_ooms_metric, labels, users[i].ooms);
	}
}

struct stat_question stat_metrics_question(const struct stat_options *options)
{
	return (struct stat_question){
		.request = "status\n",
		.schema = "status",
		.max_bytes = ANSWER_MAX,
		.timeout_ms = options->timeout_ms,
		.pids = options->pids,
		.n_pids = options->n_pids,
		.keeps = STAT_KEEPS_LAST,
	};
}

/* The devices of which samples have been written. */
struct seen_devices {
	char labels[DEVICES_MAX][LABEL_MAX];
	size_t n;
};

/* Returns true if there is room for the device, and no sample of it yet. */
static bool is_new_device(struct seen_devices *seen, const char *labels)
{
	for (size_t i = 0; i < seen->n; i++)
		if (strcmp(seen->labels[i], labels) == 0)
			return false;
	if (seen->n == DEVICES_MAX)
		return false;
	strcpy(seen->labels[seen->n++], labels);
	return true;
}

/* A device without a UUID has the number by which the process knows it. */
static void write_device_of(
	const struct writer *w, const struct metric *m, const struct shown_process *shown, struct seen_devices *devices)
{
	const json_t *device;
	char labels[LABEL_MAX], uuid[LABEL_MAX];
	uint64_t seen = 0, index, value;
	size_t i;

	json_array_foreach(json_object_get(shown->answer, "devices"), i, device) {
		if (!stat_reply_new_device(device, &seen, &index) || !stat_reply_u64(device, m->member, &value))
			continue;
		if (*write_uuid(uuid, device))
			snprintf(labels, sizeof(labels), "{%.*s}", LABEL_MAX - 3, uuid + 1);
		else
			snprintf(labels, sizeof(labels), "{device=\"%" PRIu64 "\"}", index);
		if (is_new_device(devices, labels))
			write_sample(w, m, labels, value);
	}
}

/* Writes what is the same for all processes on a device, once. Own processes are believed before foreign ones. */
static void write_devices(const struct writer *w)
{
	for (size_t i = 0; i < LENGTH(metrics); i++) {
		struct seen_devices *seen;

		if (!is_of_device(&metrics[i]))
			continue;
		seen = stat_alloc(calloc(1, sizeof(*seen)));
		begin_family(w, &metrics[i]);
		for (int is_foreign = 0; is_foreign < 2; is_foreign++)
			for (size_t at = 0; at < w->n_processes; at++)
				if ((w->processes[at].process->uid != geteuid()) == is_foreign &&
					!w->processes[at].is_cut)
					write_device_of(w, &metrics[i], &w->processes[at], seen);
		free(seen);
	}
}

static void write_group_of(
	const struct writer *w, const struct metric *m, const struct shown_process *shown, struct seen_devices *seen)
{
	const json_t *device;
	char labels[LABELS_MAX], uuid[LABEL_MAX], name[LABEL_MAX], user[LABEL_MAX], text[64];
	uint64_t n = 0, index, value;
	size_t i;

	json_array_foreach(json_object_get(shown->answer, "devices"), i, device) {
		const json_t *group = json_object_get(device, "group");

		if (!stat_reply_new_device(device, &n, &index) || !json_is_object(group) ||
			!stat_reply_u64(group, m->member, &value))
			continue;
		stat_explain_user(text, shown->process->uid);
		escape(user, text);
		snprintf(text, sizeof(text), "%.47s", stat_reply_text(group, "name"));
		escape(name, text);
		snprintf(labels, sizeof(labels), "{group=\"%.94s\",user=\"%.94s\"%.96s}", name, user,
			write_uuid(uuid, device));
		if (strlen(labels) < LABEL_MAX && is_new_device(seen, labels))
			write_sample(w, m, labels, value);
	}
}

/* Writes the groups. Without any, there are no families of them. */
static void write_groups(const struct writer *w)
{
	bool is_any = false;
	const json_t *device;
	size_t i;

	for (size_t at = 0; at < w->n_processes; at++)
		json_array_foreach(json_object_get(w->processes[at].answer, "devices"), i, device)
			is_any |= json_is_object(json_object_get(device, "group"));
	for (size_t m = 0; is_any && m < LENGTH(group_metrics); m++) {
		struct seen_devices *seen = stat_alloc(calloc(1, sizeof(*seen)));

		begin_family(w, &group_metrics[m]);
		for (size_t at = 0; at < w->n_processes; at++)
			if (!w->processes[at].is_cut)
				write_group_of(w, &group_metrics[m], &w->processes[at], seen);
		free(seen);
	}
}

/* Writes a member of an object in the answers of those processes for which it is of interest. */
static void write_object_of(const struct writer *w, const struct metric *m, const char *object,
	bool (*is_of_interest)(const json_t *status))
{
	char labels[LABELS_MAX];
	uint64_t value;

	begin_family(w, m);
	for (size_t at = 0; at < w->n_processes; at++) {
		const struct shown_process *shown = &w->processes[at];

		if (shown->is_cut || !is_of_interest(shown->answer))
			continue;
		snprintf(labels, sizeof(labels), "{%s}", shown->id);
		if (stat_reply_u64(json_object_get(shown->answer, object), m->member, &value))
			write_sample(w, m, labels, value);
	}
}

static bool is_of_interest_in_any(const struct writer *w, bool (*is_of_interest)(const json_t *status))
{
	for (size_t at = 0; at < w->n_processes; at++)
		if (is_of_interest(w->processes[at].answer))
			return true;
	return false;
}

/* Writes how processes sleep. If none does, there are no families of it. */
static void write_sleep(const struct writer *w)
{
	if (!is_of_interest_in_any(w, stat_sleep_is_of_interest))
		return;
	if (!w->form.is_all) {
		begin_family(w, &asleep_metric);
		each_device_if(w, &asleep_metric, write_member, stat_sleep_is_of_interest);
	}
	for (size_t i = 0; i < LENGTH(sleep_metrics); i++)
		write_object_of(w, &sleep_metrics[i], "sleep", stat_sleep_is_of_interest);
}

/* Likewise for memory in the host. */
static void write_spill(const struct writer *w)
{
	for (size_t i = 0; is_of_interest_in_any(w, stat_spill_is_of_interest) && i < LENGTH(spill_metrics); i++)
		write_object_of(w, &spill_metrics[i], "spill", stat_spill_is_of_interest);
}

static void write_basic(const struct writer *w)
{
	for (size_t i = 0; i < LENGTH(metrics); i++) {
		const struct metric *m = &metrics[i];

		if (is_among(m->member, basic_members, LENGTH(basic_members))) {
			begin_family(w, m);
			each_device(w, m, write_member);
		}
		if (is_among(m->member, rare_members, LENGTH(rare_members)) && is_any(w, m)) {
			begin_family(w, m);
			each_device(w, m, write_member_but_0);
		}
		if (is_among(m->member, basic_pinned_members, LENGTH(basic_pinned_members)))
			write_pinned(w, m, write_member);
	}
}

/* Writes why allocations in stream order were left to the driver. Reasons that have not occurred are left out. */
static void write_left(const struct writer *w)
{
	char labels[LABELS_MAX];
	uint64_t value;

	begin_family(w, &left_metric);
	for (const struct shown_process *shown = w->processes; shown < w->processes + w->n_processes; shown++) {
		const json_t *left = json_object_get(json_object_get(shown->answer, "async"), "left");

		for (size_t i = 0; !shown->is_cut && i < json_array_size(left) && i < REASONS_MAX; i++) {
			const json_t *reason = json_array_get(left, i);

			if (!stat_reply_u64(reason, "count", &value) || !value || !has_unique_name(left, i))
				continue;
			snprintf(labels, sizeof(labels), "{%.192s,reason=\"%.32s\"}", shown->id,
				stat_reply_text(reason, "name"));
			write_sample(w, &left_metric, labels, value);
		}
	}
}

static void write_all(const struct writer *w)
{
	for (size_t i = 0; i < LENGTH(debug_metrics); i++)
		write_debug(w, &debug_metrics[i]);
	for (size_t i = 0; i < LENGTH(metrics); i++)
		if (!is_of_device(&metrics[i]))
			write_family(w, &metrics[i], write_member);
	for (size_t i = 0; i < LENGTH(round_metrics); i++)
		write_family(w, &round_metrics[i], write_rounds);
	for (size_t i = 0; i < LENGTH(step_metrics); i++)
		write_family(w, &step_metrics[i], write_steps);
	for (size_t i = 0; i < LENGTH(region_metrics); i++) {
		begin_family(w, &region_metrics[i]);
		each_device(w, &region_metrics[i], write_regions);
	}
	write_left(w);
}

void stat_metrics_write(
	FILE *out, struct stat_survey *survey, const struct stat_node *node, struct stat_metrics_form form)
{
	struct writer w = {.out = out, .form = form, .survey = survey};
	char why[STAT_ERROR_MAX];

	survey->missed.n_series = 0;
	stat_pages_complete(survey);
	collect(&w);
	cut_series(&w, survey);
	begin_family(&w, &processes_metric);
	write_sample(&w, &processes_metric, "", survey->n_processes);
	begin_family(&w, &incomplete_metric);
	write_sample(&w, &incomplete_metric, "", stat_survey_is_incomplete(survey, why));
	if (node)
		write_node(&w, node);
	write_up(&w);
	write_infos(&w);
	write_starts(&w);
	write_devices(&w);
	write_groups(&w);
	write_sleep(&w);
	write_spill(&w);
	if (form.is_all)
		write_all(&w);
	else
		write_basic(&w);
	if (form.format == STAT_METRICS_OPENMETRICS)
		fputs("# EOF\n", out);
	free(w.processes);
}

bool stat_metrics_choose(const struct stat_options *options, struct stat_metrics_form *ret_form)
{
	const char *to = options->to ? options->to : "openmetrics";
	const char *collect = options->collect ? options->collect : "basic";

	ret_form->format = strcmp(to, "prometheus") == 0 ? STAT_METRICS_PROMETHEUS : STAT_METRICS_OPENMETRICS;
	ret_form->is_all = strcmp(collect, "all") == 0;
	if (ret_form->format == STAT_METRICS_OPENMETRICS && strcmp(to, "openmetrics") != 0) {
		stat_error("gpupool-stat metrics --help", "--to: '%s' is neither openmetrics nor prometheus.", to);
		return false;
	}
	if (!ret_form->is_all && strcmp(collect, "basic") != 0) {
		stat_error("gpupool-stat metrics --help", "--collect: '%s' is neither basic nor all.", collect);
		return false;
	}
	return true;
}

struct shown {
	const struct stat_options *options;
	struct stat_node *node; /* NULL: without counters of the node */
	struct stat_metrics_form form;
};

static enum stat_exit show(void *arg, struct stat_survey *survey)
{
	const struct shown *shown = arg;
	enum stat_exit result = STAT_OK;

	if (shown->node)
		stat_node_collect(shown->node, survey);
	stat_metrics_write(stdout, survey, shown->node, shown->form);
	/* Processes that are missing, or do not answer, are visible in the metrics. Named processes must answer. */
	if (survey->n_processes || shown->options->n_pids)
		result = stat_report_errors(survey, shown->options);
	else
		stat_report_incomplete(survey);
	return shown->options->n_pids ? result : STAT_OK;
}

enum stat_exit stat_metrics_run(const struct stat_command *command, const struct stat_options *options)
{
	struct stat_question question = stat_metrics_question(options);
	struct stat_options own = *options;
	enum stat_exit result;
	struct shown shown = {.options = options};

	if (!stat_metrics_choose(options, &shown.form))
		return STAT_USAGE;
	/* OpenMetrics ends with "# EOF", and has no empty lines. */
	own.is_quiet = shown.form.format == STAT_METRICS_OPENMETRICS;
	if (options->state) {
		shown.node = stat_node_new(options->state);
		if (!shown.node)
			return STAT_FAILED;
	}
	result = stat_watch(&question, &own, show, &shown);
	stat_node_free(shown.node);
	return result;
}
