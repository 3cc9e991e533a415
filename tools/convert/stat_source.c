/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "stat_source.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tools/answer/stat_saved.h"
#include "tools/ask/stat_explain.h"
#include "tools/ask/stat_report.h"
#include "tools/text/stat_number.h"
#include "tools/text/stat_spool.h"
#include "tools/text/stat_text.h"

enum { ANSWER_MAX = 8 << 20 };

/* ret_uid: of the process, if it has answered. */
static json_t *ask(const struct stat_source *source, const char *request, enum stat_exit *ret_exit, uid_t *ret_uid)
{
	struct stat_options options = {.pids = &source->pid, .n_pids = 1};
	char line[32];
	struct stat_question question = {
		.request = line,
		.schema = request,
		.max_bytes = ANSWER_MAX,
		.timeout_ms = source->timeout_ms,
		.pids = &source->pid,
		.n_pids = 1,
	};
	struct stat_survey survey;
	json_t *reply = NULL;

	snprintf(line, sizeof(line), "%.16s\n", request);
	stat_survey_run(&survey, &question);
	*ret_exit = stat_report_errors(&survey, &options);
	if (*ret_exit == STAT_OK) {
		reply = json_incref(survey.processes[0].reply);
		*ret_uid = survey.processes[0].uid;
	}
	stat_survey_deinit(&survey);
	return reply;
}

json_t *stat_source_ask(const struct stat_source *source, const char *request, enum stat_exit *ret_exit)
{
	uid_t unused;

	return ask(source, request, ret_exit, &unused);
}

/* Returns true if a file begins with '{', as an answer does, and neither a recording nor a trace. */
static bool is_answer(const char *path)
{
	FILE *file = fopen(path, "re");
	int first = file ? fgetc(file) : EOF;

	if (file)
		fclose(file);
	return first == '{';
}

static enum stat_exit open_recording(struct stat_source *source)
{
	char error[REPLAY_ERROR_MAX];

	source->kind = STAT_SOURCE_RECORDING;
	source->file = replay_open(source->path, error);
	if (source->file && replay_survey(source->file, &source->contents, error) == 0)
		return STAT_OK;
	stat_error(NULL, "%s: %s.", source->name, error);
	stat_source_close(source);
	return STAT_FAILED;
}

enum stat_exit stat_source_open(struct stat_source *source, const struct stat_options *options)
{
	enum stat_exit result;
	uint64_t number;

	*source = (struct stat_source){.name = options->file, .timeout_ms = options->timeout_ms, .uid = geteuid()};
	if (stat_number_parse(source->name, INT_MAX, &number) && number) {
		source->kind = STAT_SOURCE_PROCESS;
		source->pid = (pid_t)number;
		source->leaks = ask(source, "leaks", &result, &source->uid);
		return result;
	}
	source->path = stat_spool(source->name);
	if (!source->path)
		return STAT_FAILED;
	if (!is_answer(source->path))
		return open_recording(source);
	source->kind = STAT_SOURCE_SAVED;
	source->leaks = stat_saved_read_leaks(source->path, source->name);
	return source->leaks ? STAT_OK : STAT_FAILED;
}

bool stat_source_chooses(const struct stat_options *options)
{
	return options->at || options->device || options->is_pinned;
}

/* Reads the memory that the user has chosen. The options have been checked. */
static bool choose_memory(const struct stat_options *options, unsigned *ret_memory)
{
	uint64_t number = REPLAY_ALL_DEVICES;

	if (options->is_pinned && options->device) {
		stat_error("leave out one of them.", "--device and --pinned exclude each other.");
		return false;
	}
	if (options->device &&
		(!stat_number_parse(options->device, INT_MAX, &number) || number >= HISTORY_DEVICES_MAX)) {
		stat_error(NULL, "--device: a recording has devices from 0 to %d.", HISTORY_DEVICES_MAX - 1);
		return false;
	}
	*ret_memory = options->is_pinned ? HISTORY_PINNED : (unsigned)number;
	return true;
}

static void describe_held(
	struct stat_source *source, const struct replay_moment *moment, const struct replay_holders *holders)
{
	char memory[32] = "Device memory", time[STAT_TEXT_MAX], bytes[STAT_TEXT_MAX];

	if (moment->memory == HISTORY_PINNED)
		snprintf(memory, sizeof(memory), "Pinned memory");
	else if (moment->memory != REPLAY_ALL_DEVICES)
		snprintf(memory, sizeof(memory), "Memory of device %u", moment->memory);
	stat_duration(time, holders->ns);
	stat_bytes(bytes, holders->bytes);
	snprintf(source->held, sizeof(source->held), "%s %s, %s after the start: %s in %" PRIu64 " block%s", memory,
		moment->at == REPLAY_AT_PEAK  ? "at its peak"
		: moment->at == REPLAY_AT_END ? "at the end"
					      : "at that time",
		time, bytes, holders->blocks, stat_plural(holders->blocks));
}

enum stat_exit stat_source_hold(struct stat_source *source, const struct stat_options *options)
{
	struct replay_moment moment = {0};
	struct replay_holders holders;
	char error[REPLAY_ERROR_MAX];

	(void)replay_moment_parse(options->at, &moment);
	if (!choose_memory(options, &moment.memory))
		return STAT_USAGE;
	if (replay_holders_make(&holders, source->file, &source->contents, &moment, error)) {
		stat_error(NULL, "%s: %s.", source->name, error);
		return STAT_FAILED;
	}
	source->leaks = replay_holders_answer(&holders, source->file, &source->contents);
	source->held_ns = holders.ns;
	describe_held(source, &moment, &holders);
	replay_holders_free(&holders);
	return STAT_OK;
}

void stat_source_close(struct stat_source *source)
{
	if (source->file)
		replay_close(source->file);
	source->file = NULL;
	json_decref(source->leaks);
	source->leaks = NULL;
}

void stat_source_describe(const struct stat_source *source, char *text, size_t size)
{
	char command[256] = "";
	const char *slash = strrchr(source->name, '/');

	if (source->kind != STAT_SOURCE_PROCESS) {
		snprintf(text, size, "%s", slash ? slash + 1 : source->name);
		return;
	}
	stat_explain_command(command, sizeof(command), source->pid);
	snprintf(text, size, "pid %d  %s", (int)source->pid, command);
}
