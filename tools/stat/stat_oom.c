/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* gpupool-stat oom: the last out-of-memory error of a process, also of one that has ended. */

#include "stat_commands.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/oom_words.h"
#include "tools/answer/stat_cause.h"
#include "tools/answer/stat_saved.h"
#include "tools/answer/stat_stack.h"
#include "tools/ask/stat_report.h"
#include "tools/ask/stat_watch.h"
#include "tools/text/stat_text.h"
#include "stat_list.h"
#include "stat_oom_job.h"
#include "stat_show.h"

enum { STATUS_MAX = 1 << 20 };

/* Prints "name 1.00 GiB" for each member, or "name -" if it is unknown. */
static void print_bytes(const json_t *oom, const char *title, const char *const (*members)[2], size_t n)
{
	printf("%-8s", title);
	for (size_t i = 0; i < n; i++) {
		const json_t *member = json_object_get(oom, members[i][1]);
		char text[STAT_TEXT_MAX] = "-";
		uint64_t bytes;

		/* A limit that is null is not set; any other member that is missing is unknown. */
		if (json_is_null(member) && strcmp(members[i][1], "limit_bytes") == 0)
			strcpy(text, "none");
		if (stat_reply_u64(oom, members[i][1], &bytes))
			stat_bytes(text, bytes);
		printf("%s%s %s", i ? ", " : " ", members[i][0], text);
	}
	putchar('\n');
}

/* Prints the group of the process, and what its members held. */
static void print_group(const json_t *group)
{
	const json_t *members = json_object_get(group, "members"), *member;
	char name[64], command[160], held[STAT_TEXT_MAX], limit[STAT_TEXT_MAX];
	size_t i;

	if (!json_is_object(group))
		return;
	stat_clean(name, sizeof(name), stat_reply_text(group, "name"));
	if (json_is_string(json_object_get(group, "problem"))) {
		stat_clean(command, sizeof(command), stat_reply_text(group, "problem"));
		printf("%-8s cannot join '%s': %s\n", "group", name, command);
		return;
	}
	stat_bytes(held, stat_reply_u64_or_0(group, "reserved_bytes"));
	stat_bytes(limit, stat_reply_u64_or_0(group, "limit_bytes"));
	printf("%-8s '%s' holds %s of %s in %" PRIu64 " processes\n", "group", name, held, limit,
		stat_reply_u64_or_0(group, "n_members"));
	json_array_foreach(members, i, member) {
		stat_clean(command, sizeof(command), stat_reply_text(member, "command"));
		stat_bytes(held, stat_reply_u64_or_0(member, "bytes"));
		printf("%-8s process %" PRIu64 " (%s) holds %s\n", "", stat_reply_u64_or_0(member, "pid"), command,
			held);
	}
}

static void print_numbers(const json_t *oom)
{
	static const char *const process[][2] = {{"used", "used_bytes"}, {"cached", "cached_bytes"},
		{"largest unused block", "largest_unused_bytes"}, {"pending", "pending_bytes"},
		{"total", "total_bytes"}, {"not pooled", "unpooled_bytes"}, {"limit", "limit_bytes"}};
	static const char *const device[][2] = {
		{"total", "device_total_bytes"}, {"free", "device_free_bytes"}, {"outside gpupool", "outside_bytes"}};
	static const char *const host[][2] = {{"has of it", "spilled_bytes"}};

	print_bytes(oom, "process", process, sizeof(process) / sizeof(*process));
	if (stat_reply_u64_or_0(oom, "spilled_bytes"))
		print_bytes(oom, "host", host, sizeof(host) / sizeof(*host));
	print_bytes(oom, "device", device, sizeof(device) / sizeof(*device));
	print_group(json_object_get(oom, "group"));
}

/* Prints how much the program holds of what it may use, and the pool type that would have served the request. */
static void print_share(const json_t *oom)
{
	const json_t *better = json_object_get(oom, "better_pool");
	char held_text[STAT_TEXT_MAX], usable_text[STAT_TEXT_MAX], pool[32];
	uint64_t held, usable;

	if (stat_reply_u64(oom, "held_bytes", &held) && stat_reply_u64(oom, "usable_bytes", &usable) && usable) {
		stat_bytes(held_text, held);
		stat_bytes(usable_text, usable);
		printf("%-8s holds %s of the %s that it may use, %.1f%%\n", "program", held_text, usable_text,
			100 * (double)held / (double)usable);
	}
	if (!json_is_string(better))
		return;
	stat_clean(pool, sizeof(pool), json_string_value(better));
	printf("%-8s GPUPOOL_POOL=%s can combine scattered unused memory\n", "advice", pool);
}

/* Names a retry round as the library's log does. A round of another release that is not in the table keeps its name. */
static const char *text_of_round(const char *name)
{
	static const char *const texts[][2] = {
#define ROUND(number, name, doing, help) {#name, doing},
#include "pool/ladder.def"
	};

	for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++)
		if (strcmp(texts[i][0], name) == 0)
			return texts[i][1];
	return name;
}

static void print_rounds(const json_t *oom)
{
	static const char *const headings[] = {"<TRIED", ">GAINED", ">TOOK"};
	const json_t *rounds = json_object_get(oom, "rounds"), *round;
	struct stat_table *table = stat_table_new(headings, 3);
	size_t i;

	json_array_foreach(rounds, i, round) {
		char gained[STAT_TEXT_MAX], took[STAT_TEXT_MAX];
		const char *cells[] = {text_of_round(stat_reply_text(round, "name")), gained, took};

		stat_bytes(gained, stat_reply_u64_or_0(round, "gained_bytes") / 512 * 512);
		stat_duration(took, stat_reply_u64_or_0(round, "ns"));
		stat_table_add(table, cells);
	}
	if (json_array_size(rounds))
		stat_table_print(table, stat_width());
	else
		puts("No retry round was tried.");
	stat_table_free(table);
}

static void print_other_processes(const json_t *oom)
{
	const json_t *processes = json_object_get(oom, "processes"), *process;
	char bytes[STAT_TEXT_MAX], held[STAT_TEXT_MAX];
	size_t i;

	json_array_foreach(processes, i, process) {
		uint64_t uid = geteuid(), held_bytes = stat_reply_u64_or_0(process, "held_bytes");

		(void)stat_reply_u64(process, "uid", &uid);
		stat_bytes(held, held_bytes);
		stat_bytes(bytes, stat_reply_u64_or_0(process, "released_bytes"));
		printf("process %" PRIu64, stat_reply_u64_or_0(process, "pid"));
		if (uid != geteuid())
			printf(" of user %" PRIu64, uid);
		if (!json_is_true(json_object_get(process, "answered")))
			puts(" was asked, and refused or did not answer");
		else if (held_bytes)
			printf(" was asked and released %s, and holds %s\n", bytes, held);
		else
			printf(" was asked and released %s\n", bytes);
	}
}

/* The answer of an exporter that passes requests on between users. */
static void print_exporter(const json_t *oom)
{
	static const char *const failures[][2] = {
		{"refused", GP_OOM_BROKER_REFUSED_WORDS},
		{"busy", GP_OOM_BROKER_BUSY_WORDS},
		{"silent", GP_OOM_BROKER_SILENT_WORDS},
		{"invalid", GP_OOM_BROKER_INVALID_WORDS},
	};
	const json_t *exporter = json_object_get(oom, "exporter");
	const char *answer = stat_reply_text(exporter, "answer");
	char bytes[STAT_TEXT_MAX], held[STAT_TEXT_MAX];

	if (strcmp(answer, "answered") == 0) {
		stat_bytes(bytes, stat_reply_u64_or_0(exporter, "released_bytes"));
		stat_bytes(held, stat_reply_u64_or_0(exporter, "held_bytes"));
		printf("the exporter was asked: " GP_OOM_BROKER_WORDS " released %s", bytes);
		if (stat_reply_u64_or_0(exporter, "held_bytes"))
			printf("; all processes but this one hold %s", held);
		putchar('\n');
	}
	for (size_t i = 0; i < sizeof(failures) / sizeof(*failures); i++)
		if (strcmp(answer, failures[i][0]) == 0)
			printf("the exporter was asked: it %s\n", failures[i][1]);
}

/* An answer of an earlier release has no such member. */
static void print_wait(const json_t *oom)
{
	static const char *const reasons[][2] = {
		{"too-little", GP_OOM_NO_WAIT_TOO_LITTLE_WORDS},
		{"capture", GP_OOM_NO_WAIT_CAPTURE_WORDS},
		{"spent", GP_OOM_NO_WAIT_SPENT_WORDS},
	};
	const char *wait = stat_reply_text(oom, "wait");

	for (size_t i = 0; i < sizeof(reasons) / sizeof(*reasons); i++)
		if (strcmp(wait, reasons[i][0]) == 0)
			printf(GP_OOM_NO_WAIT_WORDS "%s\n", reasons[i][1]);
}

static void add_segment_rows(struct stat_table *table, const json_t *segment, struct stat_stacks *stacks)
{
	const json_t *blocks = json_object_get(segment, "blocks"), *block;
	char size[STAT_TEXT_MAX], unused[STAT_TEXT_MAX], used[STAT_TEXT_MAX];
	size_t i;

	stat_bytes(size, stat_reply_u64_or_0(segment, "size_bytes"));
	stat_bytes(unused, stat_reply_u64_or_0(segment, "unused_bytes"));
	snprintf(used, sizeof(used), "%" PRIu64, stat_reply_u64_or_0(segment, "n_used_blocks"));
	json_array_foreach(blocks, i, block) {
		const json_t *frames = json_object_get(block, "frames");
		char bytes[STAT_TEXT_MAX], *where = json_array_size(frames) ? stat_stacks_text(stacks, frames) : NULL;
		const char *cells[] = {i ? "" : stat_reply_text(segment, "address"), i ? "" : size, i ? "" : unused,
			i ? "" : used, stat_reply_text(block, "address"), bytes, where ? where : "-"};

		stat_bytes(bytes, stat_reply_u64_or_0(block, "size_bytes"));
		stat_table_add(table, cells);
		free(where);
	}
}

static void print_segments(const json_t *oom, struct stat_stacks *stacks)
{
	static const char *const headings[] = {
		"<SEGMENT", ">SIZE", ">UNUSED", ">BLOCKS", "<HELD BY", ">SIZE", "<WHERE"};
	const json_t *segments = json_object_get(oom, "segments"), *segment;
	struct stat_table *table;
	char bytes[STAT_TEXT_MAX];
	size_t i;

	if (!json_array_size(segments))
		return;
	stat_bytes(bytes, stat_reply_u64_or_0(oom, "partly_used_unused_bytes"));
	printf("\n%s are unused in %" PRIu64 " driver allocations in which the program holds blocks:\n", bytes,
		stat_reply_u64_or_0(oom, "n_partly_used_segments"));
	table = stat_table_new(headings, 7);
	json_array_foreach(segments, i, segment)
		add_segment_rows(table, segment, stacks);
	stat_table_print(table, stat_width());
	stat_table_free(table);
}

static void print_holders(const json_t *oom, struct stat_stacks *stacks)
{
	static const char *const headings[] = {">BYTES", ">BLOCKS", "<WHERE"};
	const json_t *holders = json_object_get(oom, "holders"), *holder;
	struct stat_table *table;
	size_t i;

	if (!json_array_size(holders))
		return;
	printf("\nThe program held:\n");
	table = stat_table_new(headings, 3);
	json_array_foreach(holders, i, holder) {
		const json_t *frames = json_object_get(holder, "frames");
		char bytes[STAT_TEXT_MAX], blocks[STAT_TEXT_MAX];
		char *where = json_array_size(frames) ? stat_stacks_text(stacks, frames) : NULL;
		const char *cells[] = {bytes, blocks, where ? where : "(no stack)"};

		stat_bytes(bytes, stat_reply_u64_or_0(holder, "bytes"));
		snprintf(blocks, sizeof(blocks), "%" PRIu64, stat_reply_u64_or_0(holder, "blocks"));
		stat_table_add(table, cells);
		free(where);
	}
	stat_table_print(table, stat_width());
	stat_table_free(table);
}

static void print_last(const json_t *reply, const json_t *oom, struct stat_stacks *stacks)
{
	char asked[STAT_TEXT_MAX], age[STAT_TEXT_MAX], missing[STAT_TEXT_MAX];
	char memory[STAT_TEXT_MAX] = "for pinned memory";
	uint64_t n = stat_reply_u64_or_0(reply, "n_ooms"), device;

	stat_bytes(asked, stat_reply_u64_or_0(oom, "requested_bytes"));
	stat_bytes(missing, stat_reply_u64_or_0(oom, "missing_bytes"));
	stat_age(age, stat_reply_u64_or_0(oom, "age_ns"));
	if (stat_reply_u64(oom, "device", &device))
		snprintf(memory, sizeof(memory), "on device %" PRIu64, device);
	printf("%" PRIu64 " out-of-memory error%s; the last one %s ago %s: a request for %s%s failed\n", n,
		n == 1 ? "" : "s", age, memory, asked,
		strcmp(stat_reply_text(oom, "kind"), "unpooled") ? "" : " (not pooled)");
	printf("%-8s %s", "cause", stat_cause_text(oom));
	if (stat_reply_u64_or_0(oom, "missing_bytes"))
		printf("; %s short even if all available memory were contiguous", missing);
	putchar('\n');
	print_numbers(oom);
	print_share(oom);
	stat_stacks_print(stacks, "requested at", json_object_get(oom, "frames"));
	print_rounds(oom);
	print_other_processes(oom);
	print_exporter(oom);
	print_wait(oom);
	print_segments(oom, stacks);
	print_holders(oom, stacks);
	if (json_array_size(json_object_get(oom, "callers"))) {
		puts("\nHeld by:");
		stat_show_callers(json_object_get(oom, "callers"));
	}
}

/*
 * Removes the names of files from the saved report of another user. The user may have written any names there, and no
 * running process has these files loaded, so root must not read them.
 */
static void forget_objects(const struct stat_process *process, bool is_saved)
{
	if (is_saved && process->uid != geteuid())
		json_object_del(process->reply, "objects");
}

void stat_oom_show(const struct stat_process *process, const struct stat_options *options)
{
	const json_t *oom = json_object_get(process->reply, "last");
	bool is_saved = json_is_true(json_object_get(process->reply, STAT_SAVED_KEY));
	struct stat_stacks *stacks;

	if (!json_is_object(oom)) {
		puts("no out-of-memory error");
		return;
	}
	forget_objects(process, is_saved);
	stacks = stat_stacks_new(process->reply, is_saved ? 0 : process->pid, process->uid);
	print_last(process->reply, oom, stacks);
	stat_stacks_free(stacks);
}

/* Prints the other processes, which are those that have not answered the question before. */
static void show_other_processes(const struct stat_survey *asked, const struct stat_options *options)
{
	struct stat_question question = {
		.request = "status\n",
		.schema = "status",
		.max_bytes = STATUS_MAX,
		.timeout_ms = options->timeout_ms,
	};
	struct stat_survey others;
	size_t n = 0;

	stat_survey_run(&others, &question);
	for (size_t i = 0; i < others.n_processes; i++) {
		struct stat_process *process = &others.processes[i];

		if (stat_survey_find(asked, process->pid)) {
			json_decref(process->reply);
			process->reply = NULL;
		}
		n += process->reply != NULL;
	}
	if (n) {
		puts("\nOther programs with gpupool, now:");
		stat_list_show(&others);
	}
	stat_survey_deinit(&others);
}

struct shown {
	const struct stat_command *command;
	const struct stat_options *options;
};

/* The answers of processes, and the saved reports of named processes that can no longer be asked. */
struct answers {
	struct stat_survey all; /* a copy of the survey with a list of its own */
	size_t n_asked;
	struct stat_saved *saved; /* one for each process after those that were asked */
};

static void add_saved(struct answers *answers, pid_t pid)
{
	struct stat_saved *list;
	size_t n = stat_saved_find(&answers->all, pid, &list);

	if (n) {
		answers->saved[answers->all.n_processes - answers->n_asked] = list[0];
		answers->all.processes[answers->all.n_processes++] = list[0].process;
	}
	free(list);
}

static void init_answers(struct answers *answers, const struct stat_survey *survey, const struct stat_options *options)
{
	size_t n_max = survey->n_processes + options->n_pids;

	*answers = (struct answers){.all = *survey, .n_asked = survey->n_processes};
	answers->all.processes = stat_alloc(calloc(n_max + 1, sizeof(*survey->processes)));
	answers->saved = stat_alloc(calloc(options->n_pids + 1, sizeof(*answers->saved)));
	for (size_t i = 0; i < survey->n_processes; i++)
		answers->all.processes[i] = survey->processes[i];
	for (size_t i = 0; i < options->n_pids; i++)
		if (!stat_survey_find(survey, options->pids[i]))
			add_saved(answers, options->pids[i]);
}

static void deinit_answers(struct answers *answers)
{
	for (size_t i = answers->n_asked; i < answers->all.n_processes; i++)
		json_decref(answers->all.processes[i].reply);
	free(answers->all.processes);
	free(answers->saved);
}

static void show_text(const struct answers *answers, const struct shown *shown)
{
	struct stat_survey asked = answers->all;

	asked.n_processes = answers->n_asked;
	stat_command_show(&asked, shown->command, shown->options);
	for (size_t i = answers->n_asked; i < answers->all.n_processes; i++) {
		if (i)
			putchar('\n');
		stat_oom_title(&answers->saved[i - answers->n_asked]);
		stat_oom_show(&answers->all.processes[i], shown->options);
	}
}

static void add_ended(struct stat_table *table, const struct stat_saved *saved)
{
	const json_t *last = json_object_get(saved->process.reply, "last");
	char pid[16], age[STAT_TEXT_MAX], asked[STAT_TEXT_MAX], cause[32], command[256];
	const char *cells[] = {pid, age, asked, cause, command};

	snprintf(pid, sizeof(pid), "%d", (int)saved->process.pid);
	stat_age(age, stat_reply_u64_or_0(last, "age_ns"));
	stat_bytes(asked, stat_reply_u64_or_0(last, "requested_bytes"));
	stat_clean(cause, sizeof(cause), stat_reply_text(last, "cause"));
	stat_clean(command, sizeof(command), stat_reply_text(saved->process.reply, "command"));
	stat_table_add(table, cells);
}

/* Prints a line for each process that has ended and left a report. Returns false if there is none. */
static bool show_ended(struct stat_survey *survey)
{
	static const char *const headings[] = {">PID", ">AGO", ">REQUESTED", "<CAUSE", "<COMMAND"};
	struct stat_saved *list;
	size_t n = stat_saved_find(survey, 0, &list);
	struct stat_table *table = stat_table_new(headings, 5);

	for (size_t i = 0; i < n; i++) {
		add_ended(table, &list[i]);
		json_decref(list[i].process.reply);
	}
	if (n) {
		printf("%sProcesses that ended after an out-of-memory error (gpupool-stat oom PID shows it):\n",
			survey->n_processes ? "\n" : "");
		stat_table_print(table, stat_width());
	}
	stat_table_free(table);
	free(list);
	return n != 0;
}

static enum stat_exit show_answers(void *arg, struct stat_survey *survey)
{
	const struct shown *shown = arg;
	const struct stat_options *options = shown->options;
	struct answers answers;
	enum stat_exit result;

	if (options->job)
		return stat_oom_job_show(survey, shown->command, options);
	init_answers(&answers, survey, options);
	if (options->is_json)
		stat_report_json(&answers.all, options, shown->command->name);
	else
		show_text(&answers, shown);
	if (!options->is_json && options->n_pids)
		show_other_processes(survey, options);
	if (!options->is_json && !options->n_pids && show_ended(survey) && !survey->n_processes)
		result = STAT_OK;
	else
		result = stat_report_errors(&answers.all, options);
	deinit_answers(&answers);
	return result;
}

static enum stat_exit run_saved(const struct stat_command *command, const struct stat_options *options)
{
	struct stat_saved saved = {.process = {.uid = geteuid()}};

	if (!stat_command_check_once(command, options, "FILE", STAT_FILE_IS_ONCE))
		return STAT_USAGE;
	saved.process.reply = stat_saved_read_oom(options->file);
	if (!saved.process.reply)
		return STAT_FAILED;
	saved.process.pid = (pid_t)stat_reply_u64_or_0(saved.process.reply, "pid");
	if (options->is_json)
		stat_report_print(saved.process.reply);
	else
		stat_oom_show(&saved.process, options);
	json_decref(saved.process.reply);
	return STAT_OK;
}

enum stat_exit stat_oom_run(const struct stat_command *command, const struct stat_options *options)
{
	struct stat_question question = stat_command_question(command, options, "oom\n");
	struct shown shown = {command, options};

	if (options->job && (options->file || options->n_pids)) {
		stat_error("leave out one of them.", "oom takes either --job or process ids or a file.");
		return STAT_USAGE;
	}
	if (options->file)
		return run_saved(command, options);
	return stat_watch(&question, options, show_answers, &shown);
}
