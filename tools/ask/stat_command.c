/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "stat_command.h"

#include <stdio.h>

#include "stat_explain.h"
#include "stat_report.h"
#include "stat_watch.h"

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

uint64_t stat_command_takes(const struct stat_command *command)
{
	return command->takes | (command->once ? 0 : STAT_TAKES_REPEAT) | (command->has_no_json ? 0 : STAT_TAKES_JSON) |
	       STAT_TAKES_TIMEOUT | STAT_TAKES_HELP | STAT_TAKES_VERSION;
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
	stat_report_title(process, command);
}

void stat_command_show(
	const struct stat_survey *survey, const struct stat_command *command, const struct stat_options *options)
{
	bool is_first = true;

	for (size_t i = 0; i < survey->n_processes; i++) {
		const struct stat_process *process = &survey->processes[i];

		if (!process->reply)
			continue;
		if (!is_first)
			putchar('\n');
		is_first = false;
		if (!command->has_own_title && survey->n_processes > 1)
			show_title(process);
		command->show(process, options);
	}
}

void stat_command_print_json(
	const struct stat_survey *survey, const struct stat_command *command, const struct stat_options *options)
{
	for (size_t i = 0; command->complete && i < survey->n_processes; i++)
		if (survey->processes[i].reply)
			command->complete(&survey->processes[i]);
	stat_report_json(survey, options, command->name);
}

struct shown {
	const struct stat_command *command;
	const struct stat_options *options;
};

static enum stat_exit show_answers(void *arg, struct stat_survey *survey)
{
	const struct shown *shown = arg;

	if (shown->options->is_json)
		stat_command_print_json(survey, shown->command, shown->options);
	else
		stat_command_show(survey, shown->command, shown->options);
	return stat_report_errors(survey, shown->options);
}

enum stat_exit stat_command_ask(
	const struct stat_command *command, const struct stat_options *options, const char *request)
{
	struct stat_question question = stat_command_question(command, options, request);
	struct shown shown = {command, options};

	return stat_watch(&question, options, show_answers, &shown);
}

enum stat_exit stat_command_read(const struct stat_command *command, const struct stat_options *options)
{
	char request[64];

	snprintf(request, sizeof(request), "%s\n", command->name);
	return stat_command_ask(command, options, request);
}
