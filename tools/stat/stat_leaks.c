/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * gpupool-stat leaks: gets an answer from a process or a file, groups its blocks, and compares them with an older
 * answer: that of --diff or, with --watch, the first one.
 */

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tools/answer/stat_group.h"
#include "tools/answer/stat_saved.h"
#include "tools/answer/stat_stack.h"
#include "tools/ask/stat_explain.h"
#include "tools/ask/stat_report.h"
#include "tools/ask/stat_watch.h"
#include "tools/text/stat_text.h"
#include "stat_commands.h"

enum { ROWS = 40, REQUEST_MAX = 128, COLUMNS = 5 };

static void print_growth(char text[static STAT_TEXT_MAX], int64_t growth)
{
	char bytes[STAT_TEXT_MAX];

	stat_bytes(bytes, growth < 0 ? -(uint64_t)growth : (uint64_t)growth);
	snprintf(text, STAT_TEXT_MAX, "%s%.20s", growth > 0 ? "+" : growth < 0 ? "-" : "", bytes);
}

static void add_row(struct stat_table *table, const struct stat_groups *groups, const struct stat_group *group)
{
	char bytes[STAT_TEXT_MAX], blocks[STAT_TEXT_MAX], oldest[STAT_TEXT_MAX] = "-", growth[STAT_TEXT_MAX];
	const char *cells[COLUMNS] = {bytes, blocks, oldest};
	size_t n = 3;

	stat_bytes(bytes, group->bytes);
	snprintf(blocks, sizeof(blocks), "%" PRIu64, group->blocks);
	if (group->oldest_ns)
		stat_age(oldest, group->oldest_ns);
	print_growth(growth, group->growth);
	if (groups->has_growth)
		cells[n++] = growth;
	cells[n] = group->key;
	stat_table_add(table, cells);
}

static struct stat_table *new_table(const struct stat_groups *groups, const char *headings[static COLUMNS])
{
	static const char *const by[STAT_N_BY] = {"<WHERE", "<LIBRARY", "<SIZE", "<AGE"};
	size_t n = 0;

	headings[n++] = ">BYTES";
	headings[n++] = ">BLOCKS";
	headings[n++] = ">OLDEST";
	if (groups->has_growth)
		headings[n++] = ">GROWTH";
	headings[n++] = by[groups->by];
	return stat_table_new(headings, n);
}

/* Prints a row for each group. Groups that are too small, or beyond the last row, are only added up. */
static void print_groups(const struct stat_groups *groups, const struct stat_options *options)
{
	const char *headings[COLUMNS];
	struct stat_table *table = new_table(groups, headings);
	uint64_t n_rows = options->max_blocks == UINT64_MAX ? ROWS : options->max_blocks;
	uint64_t n = 0, rest = 0, rest_bytes = 0;
	char bytes[STAT_TEXT_MAX];

	for (size_t i = 0; i < groups->n; i++) {
		const struct stat_group *group = &groups->list[i];

		if (n < n_rows && (group->bytes >= options->min_bytes || group->growth < 0)) {
			add_row(table, groups, group);
			n++;
		} else {
			rest++;
			rest_bytes += group->bytes;
		}
	}
	if (n)
		stat_table_print(table, stat_width());
	stat_table_free(table);
	stat_bytes(bytes, rest_bytes);
	if (rest)
		printf("and %" PRIu64 " more, %s\n", rest, bytes);
}

static void print_bad_frees(const json_t *reply, struct stat_stacks *stacks)
{
	const json_t *list = json_object_get(reply, "bad_frees"), *bad;
	char clean[STAT_TEXT_MAX], age[STAT_TEXT_MAX];
	size_t i;

	json_array_foreach(list, i, bad) {
		stat_clean(clean, sizeof(clean), stat_reply_text(bad, "address"));
		stat_age(age, stat_reply_u64_or_0(bad, "age_ns"));
		printf("%s free of %s, %s ago\n",
			strcmp(stat_reply_text(bad, "what"), "double") == 0 ? "double" : "invalid", clean, age);
		stat_stacks_print(stacks, "freed here", json_object_get(bad, "freed_here"));
		stat_stacks_print(stacks, "freed before", json_object_get(bad, "freed_before"));
		stat_stacks_print(stacks, "allocated", json_object_get(bad, "allocated"));
	}
}

static void print_setting(const json_t *setting, pid_t pid)
{
	uint64_t sample = stat_reply_u64_or_0(setting, "sample");
	char age[STAT_TEXT_MAX];

	if (!json_is_true(json_object_get(setting, "is_on"))) {
		printf("stacks are off");
		if (pid)
			printf(": gpupool-stat stacks %d on", (int)pid);
		putchar('\n');
		return;
	}
	stat_age(age, stat_reply_u64_or_0(setting, "since_ns"));
	printf("stacks of %" PRIu64 " frames", stat_reply_u64_or_0(setting, "depth"));
	if (sample > 1)
		printf(", below 1 MiB for one block in %" PRIu64, sample);
	printf(", recorded for %s\n", age);
}

/* pid: 0 if the answer comes from a file. */
static void print_head(const json_t *reply, pid_t pid)
{
	const json_t *setting = json_object_get(reply, "stacks");
	uint64_t n = stat_reply_u64_or_0(reply, "n_blocks");
	uint64_t sites_dropped = stat_reply_u64_or_0(setting, "sites_dropped");
	uint64_t blocks_dropped = stat_reply_u64_or_0(setting, "blocks_dropped");
	char bytes[STAT_TEXT_MAX];

	stat_bytes(bytes, stat_reply_u64_or_0(reply, "bytes"));
	printf("%s in %" PRIu64 " block%s; ", bytes, n, n == 1 ? "" : "s");
	print_setting(setting, pid);
	if (json_is_true(json_object_get(reply, "truncated")))
		printf("of %" PRIu64 " call sites, the answer had room only for those with the most bytes\n",
			stat_reply_u64_or_0(reply, "n_sites"));
	if (sites_dropped || blocks_dropped)
		printf("%" PRIu64 " stacks and %" PRIu64 " blocks were not recorded, for lack of room\n", sites_dropped,
			blocks_dropped);
}

/* Without stacks only the calling libraries are known, so the default is to group by them. */
static enum stat_by by_of(const json_t *reply, const struct stat_options *options)
{
	enum stat_by by;

	(void)stat_by_parse(options->by, &by);
	if (!options->by && !json_array_size(json_object_get(reply, "sites")) &&
		json_is_array(json_object_get(reply, "callers")))
		by = STAT_BY_LIBRARY;
	return by;
}

/* base: the answer to compare with, or NULL. The pid is 0 if the answer comes from a file. */
static void show(const struct stat_process *process, const json_t *base, const struct stat_options *options)
{
	const json_t *reply = process->reply;
	struct stat_stacks *stacks = stat_stacks_new(reply, process->pid, process->uid), *base_stacks = NULL;
	struct stat_groups groups, older = {0};
	enum stat_by by = by_of(reply, options);

	stat_groups_make(&groups, by, reply, stacks);
	if (base) {
		base_stacks = stat_stacks_new(base, 0, geteuid());
		stat_groups_make(&older, by, base, base_stacks);
		stat_groups_compare(&groups, &older);
	}
	print_head(reply, process->pid);
	print_groups(&groups, options);
	if (by == STAT_BY_SITE || !options->by)
		print_bad_frees(reply, stacks);
	stat_groups_free(&groups);
	stat_groups_free(&older);
	stat_stacks_free(stacks);
	if (base_stacks)
		stat_stacks_free(base_stacks);
}

void stat_leaks_show(const struct stat_process *process, const struct stat_options *options)
{
	show(process, NULL, options);
}

static enum stat_exit run_saved(const struct stat_options *options, const json_t *base)
{
	struct stat_process saved = {
		.reply = stat_saved_read_leaks(options->from, options->from),
		.uid = geteuid(),
	};

	if (!saved.reply)
		return STAT_FAILED;
	if (options->is_json) {
		stat_stacks_complete(&saved);
		stat_report_print(saved.reply);
	} else {
		show(&saved, base, options);
	}
	json_decref(saved.reply);
	return STAT_OK;
}

/* The first answers, with which later ones are compared. */
struct first {
	const struct stat_command *command;
	const struct stat_options *options;
	const json_t *base; /* to compare with instead, or NULL */
	bool is_later;
	json_t *replies; /* by pid */
};

static void keep_first(struct first *first, const struct stat_survey *survey)
{
	for (size_t i = 0; i < survey->n_processes; i++) {
		char pid[16];

		snprintf(pid, sizeof(pid), "%d", (int)survey->processes[i].pid);
		if (survey->processes[i].reply && !json_object_get(first->replies, pid))
			json_object_set(first->replies, pid, survey->processes[i].reply);
	}
	first->is_later = true;
}

static void show_all(const struct stat_survey *survey, const struct first *first)
{
	bool is_any = false;

	for (size_t i = 0; i < survey->n_processes; i++) {
		const struct stat_process *process = &survey->processes[i];
		char command[256], pid[16];
		const json_t *base = first->base;

		if (!process->reply)
			continue;
		snprintf(pid, sizeof(pid), "%d", (int)process->pid);
		if (!base && first->is_later)
			base = json_object_get(first->replies, pid);
		if (is_any)
			putchar('\n');
		is_any = true;
		stat_explain_command(command, sizeof(command), process->pid);
		stat_report_title(process, command);
		show(process, base, first->options);
	}
}

static enum stat_exit show_answers(void *arg, struct stat_survey *survey)
{
	struct first *first = arg;

	if (first->options->is_json) {
		stat_command_print_json(survey, first->command, first->options);
	} else {
		show_all(survey, first);
		keep_first(first, survey);
	}
	return stat_report_errors(survey, first->options);
}

static enum stat_exit ask(const struct stat_command *command, const struct stat_options *options, const json_t *base)
{
	char request[REQUEST_MAX] = "leaks\n";
	struct stat_question question = stat_command_question(command, options, request);
	struct first first = {
		.command = command,
		.options = options,
		.base = base,
		.replies = stat_alloc(json_object()),
	};
	enum stat_exit result;

	if (options->older_ms)
		snprintf(request, sizeof(request), "leaks %" PRIu64 "\n", options->older_ms);
	result = stat_watch(&question, options, show_answers, &first);
	json_decref(first.replies);
	return result;
}

enum stat_exit stat_leaks_run(const struct stat_command *command, const struct stat_options *options)
{
	enum stat_exit result = STAT_FAILED;
	json_t *base = NULL;
	enum stat_by unused;

	if (!stat_by_parse(options->by, &unused)) {
		stat_error("use site, library, size or age.", "--by: blocks cannot be grouped by '%s'.", options->by);
		return STAT_USAGE;
	}
	if (options->from && !stat_command_check_once(command, options, "--from", STAT_FILE_IS_ONCE))
		return STAT_USAGE;
	if (options->diff)
		base = stat_saved_read_leaks(options->diff, options->diff);
	if (!options->diff || base)
		result = options->from ? run_saved(options, base) : ask(command, options, base);
	json_decref(base);
	return result;
}
