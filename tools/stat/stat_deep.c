/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "stat_deep.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tools/answer/stat_sleep.h"
#include "tools/ask/checkpoint.h"
#include "tools/ask/device_memory.h"
#include "tools/ask/stat_explain.h"
#include "tools/text/stat_number.h"

enum { DEVICES_MAX = 64, REQUEST_MAX = 2048, ANSWER_MS = 10000, LOOK_MS = 50, ANSWER_MAX = 1 << 20 };

#define MS_NS UINT64_C(1000000)

/* A restore needs somewhat more than the driver took out, since the memory may lie in other pieces. */
#define MARGIN_MAX (UINT64_C(256) << 20)

static bool fail(struct stat_deep *deep, const char *next, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

static bool fail(struct stat_deep *deep, const char *next, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(deep->why, sizeof(deep->why), format, args);
	va_end(args);
	snprintf(deep->next, sizeof(deep->next), "%s", next ? next : "");
	deep->exit = STAT_FAILED;
	return false;
}

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000 * MS_NS + (uint64_t)now.tv_nsec;
}

static const struct stat_process *only(const struct stat_survey *survey)
{
	return survey->n_processes ? &survey->processes[0] : NULL;
}

static const json_t *sleep_of(const struct stat_survey *survey)
{
	return only(survey) ? json_object_get(only(survey)->reply, "sleep") : NULL;
}

static const json_t *devices_of(const struct stat_survey *survey)
{
	return only(survey) ? json_object_get(only(survey)->reply, "devices") : NULL;
}

bool stat_deep_is(const struct stat_survey *survey)
{
	return json_is_true(json_object_get(sleep_of(survey), "deep"));
}

/* Sends a request that the process answers from its books. Returns false, with the reason, after an error. */
static bool tell(struct stat_deep *deep, const char *request)
{
	struct stat_question question = {.request = request,
		.schema = "deep",
		.max_bytes = ANSWER_MAX,
		.timeout_ms = ANSWER_MS,
		.pids = &deep->pid,
		.n_pids = 1};
	struct stat_survey survey;
	bool is_done;

	stat_survey_run(&survey, &question);
	is_done = survey.n_processes && survey.processes[0].exit == STAT_OK;
	if (!survey.n_processes)
		(void)fail(deep, NULL, "the process has ended");
	else if (!is_done)
		(void)fail(deep, survey.processes[0].next, "the process %s", survey.processes[0].error);
	stat_survey_deinit(&survey);
	return is_done;
}

/* A communicator of PyTorch: some drivers cannot checkpoint the process, and end it. */
static bool has_nccl(pid_t pid)
{
	bool is_found = false;
	struct dirent *entry;
	char path[64];
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	dir = opendir(path);
	while (dir && !is_found && (entry = readdir(dir))) {
		char name[512], comm[32] = "";
		FILE *file;

		snprintf(name, sizeof(name), "%s/%s/comm", path, entry->d_name);
		file = fopen(name, "r");
		if (!file)
			continue;
		is_found = fgets(comm, sizeof(comm), file) && strncmp(comm, "pt_nccl_", 8) == 0;
		(void)fclose(file);
	}
	if (dir)
		(void)closedir(dir);
	return is_found;
}

/* Obstacles that are seen without a call of the driver, which might wait forever, or end the process. */
static bool is_reachable(struct stat_deep *deep, const struct stat_process *process)
{
	if (!process->client.peer_pid)
		return fail(deep, "run gpupool-stat in the container of the process.",
			"the process is in another pid namespace");
	if (stat_explain_is_stopped(process))
		return fail(deep, "let it go on first: kill -CONT.",
			"the process is stopped, and the driver would wait for it");
	return true;
}

static const char *state_name(enum checkpoint_state state)
{
	static const char *const names[] = {"running", "locked", "checkpointed", "unusable after an error"};

	return names[state];
}

/* A process that does not answer may be held by the driver for another program. */
static bool look_at_driver(struct stat_deep *deep)
{
	enum checkpoint_state state;

	if (!checkpoint_open(deep->why) || !checkpoint_get(deep->pid, &state, deep->why) || state == CHECKPOINT_RUNNING)
		return true;
	return fail(deep, "have that program bring it back; with NVIDIA's tool: cuda-checkpoint --toggle --pid PID.",
		"another program has the driver hold the process: its state is %s, but gpupool-stat did not ask for it",
		state_name(state));
}

bool stat_deep_look(struct stat_deep *deep, struct stat_survey *survey)
{
	struct stat_question question = {.request = "status\n",
		.schema = "status",
		.max_bytes = ANSWER_MAX,
		.timeout_ms = deep->timeout_ms,
		.pids = &deep->pid,
		.n_pids = 1};

	deep->exit = STAT_OK;
	stat_survey_run(survey, &question);
	if (only(survey) && only(survey)->exit == STAT_NO_ANSWER && !stat_explain_is_stopped(only(survey)))
		return look_at_driver(deep);
	return true;
}

/* Reads the memory of the devices that the process uses. Returns how many there are. */
static size_t read_devices(
	const struct stat_deep *deep, const struct stat_survey *survey, struct device_memory memory[static DEVICES_MAX])
{
	const json_t *devices = devices_of(survey), *device;
	size_t i, n = 0;

	json_array_foreach(devices, i, device) {
		if (n == DEVICES_MAX)
			break;
		memory[n] = (struct device_memory){0, 0, UINT64_MAX};
		if (!device_memory_read(stat_reply_text(device, "uuid"), deep->pid, &memory[n]))
			memory[n].used_bytes = UINT64_MAX;
		n++;
	}
	return n;
}

/* Returns the bytes that the driver took out of a device. In a container NVML knows the device, but not the process. */
static uint64_t taken_bytes(const struct device_memory *before, const struct device_memory *after)
{
	if (before->process_bytes != UINT64_MAX && after->process_bytes == UINT64_MAX)
		return before->process_bytes;
	if (before->used_bytes == UINT64_MAX || after->used_bytes > before->used_bytes)
		return UINT64_MAX;
	return before->used_bytes - after->used_bytes;
}

/* Has the process note it, since a later wake, by another process, must know whether there is room for it. */
static void note_taken(struct stat_deep *deep, const struct stat_survey *survey, const struct device_memory *before)
{
	struct device_memory after[DEVICES_MAX];
	char request[REQUEST_MAX] = "deep taken ";
	size_t n = read_devices(deep, survey, after), length = strlen(request);

	deep->bytes = n ? 0 : UINT64_MAX;
	for (size_t i = 0; i < n; i++) {
		uint64_t bytes = taken_bytes(&before[i], &after[i]);

		if (bytes == UINT64_MAX || deep->bytes == UINT64_MAX)
			deep->bytes = UINT64_MAX;
		else
			deep->bytes += bytes;
		length +=
			(size_t)snprintf(request + length, sizeof(request) - length, "%s%" PRIu64, i ? "," : "", bytes);
	}
	strcat(request, "\n");
	if (n && !tell(deep, request))
		deep->exit = STAT_OK; /* without that note a wake tries without looking */
}

/* Lets the process call the driver again after a failure, and keeps the reason of the failure. */
static bool give_up(struct stat_deep *deep, bool is_locked)
{
	struct stat_deep unused = {.pid = deep->pid};
	enum checkpoint_state state;
	char why[STAT_ERROR_MAX];

	if (is_locked && !checkpoint_unlock(deep->pid, why) &&
		(!checkpoint_get(deep->pid, &state, why) || state != CHECKPOINT_RUNNING)) {
		if (checkpoint_get(deep->pid, &state, why) && state == CHECKPOINT_FAILED)
			snprintf(deep->next, sizeof(deep->next),
				"end the process: the driver lets it use CUDA no more.");
		else
			snprintf(deep->next, sizeof(deep->next), "try: gpupool-stat wake %d", (int)deep->pid);
		return false;
	}
	(void)tell(&unused, "deep end\n");
	return false;
}

static bool lock(struct stat_deep *deep, enum checkpoint_state state)
{
	if (state == CHECKPOINT_RUNNING && !checkpoint_lock(deep->pid, deep->timeout_ms, deep->why)) {
		(void)fail(deep, "the pool's memory is asleep; the rest is where it was.", "%s", strdupa(deep->why));
		return give_up(deep, false);
	}
	return true;
}

static bool take(struct stat_deep *deep, enum checkpoint_state state)
{
	if (state == CHECKPOINT_TAKEN || checkpoint_take(deep->pid, deep->why))
		return true;
	(void)fail(deep, "the pool's memory is asleep; the rest is where it was.", "%s", strdupa(deep->why));
	return give_up(deep, true);
}

static bool is_refused_before(struct stat_deep *deep, const struct stat_survey *survey)
{
	const struct stat_process *process = only(survey);

	if (!process) {
		(void)fail(deep, NULL, "the process has not said what it uses; try again");
		return true;
	}
	if (!is_reachable(deep, process))
		return true;
	if (has_nccl(deep->pid)) {
		(void)fail(deep, NULL, "PyTorch uses NCCL in the process, and some drivers end such a process");
		return true;
	}
	if (!checkpoint_open(deep->why)) {
		(void)fail(deep, NULL, "%s", strdupa(deep->why));
		return true;
	}
	return false;
}

bool stat_deep_go(struct stat_deep *deep, const struct stat_survey *survey)
{
	struct device_memory before[DEVICES_MAX];
	enum checkpoint_state state;
	uint64_t start_ns = now_ns();

	if (is_refused_before(deep, survey))
		return false;
	if (!checkpoint_get(deep->pid, &state, deep->why))
		return fail(deep, NULL, "%s", strdupa(deep->why));
	if (state == CHECKPOINT_FAILED || (state != CHECKPOINT_RUNNING && !stat_deep_is(survey)))
		return fail(deep, NULL, "another program has the driver hold the process: its state is %s",
			state_name(state));
	deep->was_so = state == CHECKPOINT_TAKEN;
	deep->is_done = deep->was_so;
	if (deep->was_so)
		return true;
	if (!tell(deep, "deep begin\n"))
		return false;
	(void)read_devices(deep, survey, before);
	if (!lock(deep, state) || !take(deep, state))
		return false;
	note_taken(deep, survey, before);
	deep->ns = now_ns() - start_ns;
	return deep->is_done = true;
}

/*
 * Waits for room for what the driver took out. A driver that has tried a restore without that may never restore the
 * process any more (580 and 595). If the bytes are unknown, there is
 * nothing to wait for.
 */
static bool await_room(struct stat_deep *deep, const struct stat_survey *survey)
{
	const json_t *devices = devices_of(survey), *device;
	uint64_t end_ns = now_ns() + (uint64_t)deep->timeout_ms * MS_NS;
	char needed[STAT_TEXT_MAX], left[STAT_TEXT_MAX];
	size_t i;

	json_array_foreach(devices, i, device) {
		struct device_memory memory;
		uint64_t bytes, need;

		if (!stat_reply_u64(device, "deep_bytes", &bytes))
			continue;
		need = bytes + (bytes / 4 < MARGIN_MAX ? bytes / 4 : MARGIN_MAX);
		while (device_memory_read(stat_reply_text(device, "uuid"), deep->pid, &memory) &&
			memory.free_bytes < need) {
			if (now_ns() < end_ns) {
				usleep(LOOK_MS * 1000);
				continue;
			}
			stat_bytes(needed, need);
			stat_bytes(left, memory.free_bytes);
			return fail(deep, "free memory of the device, and try again, or wait longer with --timeout.",
				"short of device memory: the driver needs %s of device %" PRIu64
				" first, and %s are free; the process stays deep asleep",
				needed, stat_reply_u64_or_0(device, "index"), left);
		}
	}
	return true;
}

static bool restore(struct stat_deep *deep, const struct stat_survey *survey)
{
	if (!await_room(deep, survey))
		return false;
	if (checkpoint_restore(deep->pid, deep->why))
		return true;
	return fail(deep, "free memory of the device, and try again; if that never helps, end the process.",
		"%s; the process stays deep asleep", strdupa(deep->why));
}

bool stat_deep_undo(struct stat_deep *deep, const struct stat_survey *survey)
{
	enum checkpoint_state state;
	uint64_t start_ns = now_ns();

	if (!is_reachable(deep, only(survey)))
		return false;
	if (!checkpoint_open(deep->why) || !checkpoint_get(deep->pid, &state, deep->why))
		return fail(deep, NULL, "%s; the process stays deep asleep", strdupa(deep->why));
	if (state == CHECKPOINT_FAILED)
		return fail(deep, "end the process: the driver lets it use CUDA no more.",
			"an earlier checkpoint or restore of the process failed in the driver");
	if (!stat_sleep_deep_bytes(only(survey)->reply, &deep->bytes))
		deep->bytes = UINT64_MAX;
	if (state == CHECKPOINT_TAKEN && !restore(deep, survey))
		return false;
	if (state != CHECKPOINT_RUNNING && !checkpoint_unlock(deep->pid, deep->why))
		return fail(deep, "try again.", "%s", strdupa(deep->why));
	deep->ns = now_ns() - start_ns;
	return deep->is_done = tell(deep, "deep end\n");
}
