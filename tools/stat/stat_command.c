/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "stat_command.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/convert/convert.h"
#include "tools/replay/replay.h"
#include "tools/report/report.h"
#include "stat_change.h"
#include "stat_check.h"
#include "stat_debug.h"
#include "stat_explain.h"
#include "tools/export/stat_export.h"
#include "stat_leaks.h"
#include "stat_map.h"
#include "tools/export/stat_metrics.h"
#include "stat_query.h"
#include "stat_report.h"
#include "stat_text.h"
#include "tools/top/stat_top.h"
#include "stat_watch.h"

enum {
	SMALL_ANSWER = 1 << 20,
	LARGE_ANSWER = 8 << 20,
};

struct stat_question stat_command_question(
	const struct stat_command *command, const struct stat_options *options, const char *request)
{
	return (struct stat_question){
		.request = request,
		.schema = command->name,
		.max_bytes = command->max_bytes,
		.timeout_ms = options->timeout_ms,
		.pids = options->pids,
		.n_pids = options->n_pids,
	};
}

unsigned stat_command_takes(const struct stat_command *command)
{
	return command->takes | (command->once ? 0 : STAT_TAKES_REPEAT);
}

bool stat_command_check_once(
	const struct stat_command *command, const struct stat_options *options, const char *word, const char *why)
{
	char next[64];

	if (!options->watch_ms && !options->count)
		return true;
	snprintf(next, sizeof(next), "gpupool-stat %s --help", command->name);
	stat_error(next, "%s%s%s does not take %s: %s.", command->name, word ? " " : "", word ? word : "",
		options->watch_ms ? "--watch" : "--count", why);
	return false;
}

static void show_title(const struct stat_process *process)
{
	char command[256];

	stat_explain_command(command, sizeof(command), process->pid);
	stat_show_title(process, command);
}

void stat_command_show(
	const struct stat_survey *survey, const struct stat_command *command, const struct stat_options *options)
{
	bool has_own_title = command->show == stat_show_status, is_first = true;

	for (size_t i = 0; i < survey->n_processes; i++) {
		const struct stat_process *process = &survey->processes[i];

		if (!process->reply)
			continue;
		if (!is_first)
			putchar('\n');
		is_first = false;
		if (!has_own_title && survey->n_processes > 1)
			show_title(process);
		command->show(process, options);
	}
}

struct shown {
	const struct stat_command *command;
	const struct stat_options *options;
};

static enum stat_exit show_answers(void *arg, struct stat_survey *survey)
{
	const struct shown *shown = arg;

	if (shown->options->is_json)
		stat_report_json(survey, shown->options, shown->command->name);
	else
		stat_command_show(survey, shown->command, shown->options);
	return stat_report_errors(survey, shown->options);
}

enum stat_exit stat_command_read(const struct stat_command *command, const struct stat_options *options)
{
	char request[64] = "";
	struct stat_question question = stat_command_question(command, options, request);
	struct shown shown = {command, options};

	/* For text, the process lists all blocks, and the largest are chosen here. For JSON, the process chooses. */
	if (options->is_json && options->max_blocks != UINT64_MAX && command->show == stat_show_blocks)
		snprintf(request, sizeof(request), "%s %" PRIu64 "\n", command->name, options->max_blocks);
	/* To add up the blocks of each caller the process must look at all of them: not with --watch. */
	else if (command->show == stat_show_status && !options->watch_ms)
		snprintf(request, sizeof(request), "status callers\n");
	else
		snprintf(request, sizeof(request), "%s\n", command->name);
	return stat_watch(&question, options, show_answers, &shown);
}

static enum stat_exit run_status(const struct stat_command *command, const struct stat_options *options)
{
	struct stat_question question = stat_command_question(command, options, "status\n");

	if (options->query || options->format)
		return stat_query_run(&question, options, STAT_QUERY_DEVICES);
	return stat_command_read(command, options);
}

static enum stat_exit show_list(void *arg, struct stat_survey *survey)
{
	const struct stat_options *options = arg;

	if (options->is_quiet)
		for (size_t i = 0; i < survey->n_processes; i++)
			printf("%d\n", (int)survey->processes[i].pid);
	else if (options->is_json)
		stat_report_list_json(survey);
	else
		stat_show_list(survey);
	return stat_report_errors(survey, options);
}

static enum stat_exit run_list(const struct stat_command *command, const struct stat_options *options)
{
	struct stat_question question = stat_command_question(command, options, "status\n");
	struct stat_options shown = *options;

	question.schema = "status";
	if (options->query || options->format)
		return stat_query_run(&question, options, STAT_QUERY_PROCESSES);
	if (options->is_quiet)
		question.request = NULL;
	return stat_watch(&question, options, show_list, &shown);
}

const struct stat_command stat_commands[] = {
	{"status", "[PID...]", "memory, limits and counters", SIZE_MAX, STAT_TAKES_QUERY, run_status, stat_show_status,
		SMALL_ANSWER},
	{"list", "", "one line for each process", 0, STAT_TAKES_QUIET | STAT_TAKES_QUERY, run_list, NULL, SMALL_ANSWER},
	{"blocks", "[PID]", "the blocks that a program holds, the largest first", 1, STAT_TAKES_MAX, stat_command_read,
		stat_show_blocks, LARGE_ANSWER},
	{"map", "[PID]", "a map of the segments, and the blocks that keep them in use", 1,
		STAT_TAKES_MAX | STAT_TAKES_LOOK, stat_command_read, stat_show_map, LARGE_ANSWER},
	{"reclaim", "[PID]", "give cached memory back to the driver; prints the bytes", 1,
		STAT_TAKES_DEVICE | STAT_TAKES_PINNED, stat_reclaim_run, stat_reclaim_show, SMALL_ANSWER,
		STAT_CHANGE_IS_ONCE},
	{"limit", "[PID] [get | set LIMITS]", "show the limits and what counts against them, or set them", 1,
		STAT_TAKES_VERB | STAT_TAKES_PINNED, stat_limit_run, stat_show_limit, SMALL_ANSWER},
	{"defer", "[PID] on | off", "defer flushes of freed memory, or stop deferring them", 1, STAT_TAKES_VERB,
		stat_defer_run, stat_defer_show, SMALL_ANSWER, STAT_CHANGE_IS_ONCE},
	{"region", "[PID] [list | invalidate NAME]", "list the named caches, or empty one of them", 1, STAT_TAKES_VERB,
		stat_region_run, stat_region_show, SMALL_ANSWER},
	{"config", "[PID]", "the settings, and the source of each", 1, 0, stat_command_read, stat_show_config,
		SMALL_ANSWER},
	{"leaks", "[PID...]", "the blocks that a program holds, by call site", SIZE_MAX,
		STAT_TAKES_MAX | STAT_TAKES_BY | STAT_TAKES_MIN | STAT_TAKES_OLDER | STAT_TAKES_DIFF | STAT_TAKES_FROM,
		stat_leaks_run, stat_leaks_show, LARGE_ANSWER},
	{"stacks", "PID [on [DEPTH] [sample=N] | off]", "switch the recording of call stacks on or off", 1,
		STAT_TAKES_WORDS, stat_stacks_run, stat_show_stacks, SMALL_ANSWER},
	{"oom", "[PID...|FILE]", "the last out-of-memory error and its cause; also saved ones", SIZE_MAX,
		STAT_TAKES_SAVED, stat_oom_run, stat_show_oom, SMALL_ANSWER},
	{"debug", "[PID...]", "writes past a block or after its free (GPUPOOL_DEBUG)", SIZE_MAX, STAT_TAKES_CHECK,
		stat_debug_run, stat_debug_show, SMALL_ANSWER},
	{"metrics", "[PID...]", "the counters, in the OpenMetrics format", SIZE_MAX, STAT_TAKES_TO | STAT_HAS_NO_JSON,
		stat_metrics_run, NULL, SMALL_ANSWER},
	{"export", "", "serve the metrics of all processes over HTTP", 0, STAT_TAKES_LISTEN | STAT_HAS_NO_JSON,
		stat_export_run, NULL, SMALL_ANSWER, "it asks the processes at each HTTP request"},
	{"convert", "FILE|PID", "write a file that PyTorch, Perfetto, RMM or pprof reads", 0,
		STAT_TAKES_FILE | STAT_TAKES_TO | STAT_TAKES_OUTPUT | STAT_TAKES_MAX | STAT_HAS_NO_JSON,
		convert_command, NULL, 0, "it writes one file"},
	{"report", "FILE|PID", "write an HTML report with all details, for a browser", 0,
		STAT_TAKES_FILE | STAT_TAKES_OUTPUT | STAT_TAKES_MAX | STAT_HAS_NO_JSON, report_command, NULL, 0,
		"it writes one file"},
	{"top", "[PID...]", "devices and processes, live", SIZE_MAX,
		STAT_TAKES_LOOK | STAT_TAKES_CHANGES | STAT_HAS_NO_JSON, stat_top_run, NULL, SMALL_ANSWER},
	{"check", "[PID...]", "one line and an exit code, for monitoring systems", SIZE_MAX, STAT_TAKES_LEVELS,
		stat_check_run, NULL, SMALL_ANSWER},
	{"replay", "FILE", "run a recording again, with other pool types and limits", 0,
		STAT_TAKES_FILE | STAT_TAKES_POOL | STAT_TAKES_LIMIT | STAT_TAKES_REUSE, replay_command, NULL, 0,
		STAT_FILE_IS_ONCE},
	{NULL},
};
