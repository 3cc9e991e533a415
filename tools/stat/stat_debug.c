/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* gpupool-stat debug: shows the invalid writes that GPUPOOL_DEBUG has found. */

#include "stat_commands.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "tools/answer/stat_stack.h"
#include "tools/text/stat_text.h"

static void print_head(const json_t *reply)
{
	uint64_t errors = stat_reply_u64_or_0(reply, "errors"), checks = stat_reply_u64_or_0(reply, "checks");
	uint64_t held = stat_reply_u64_or_0(reply, "held_blocks");
	uint64_t pieces = stat_reply_u64_or_0(reply, "poisoned_pieces");
	bool is_poison = json_is_true(json_object_get(reply, "poison"));
	bool is_guard = json_is_true(json_object_get(reply, "guard"));
	char time[STAT_TEXT_MAX], bytes[STAT_TEXT_MAX], text[256];

	stat_duration(time, stat_reply_u64_or_0(reply, "ns"));
	stat_bytes(bytes, stat_reply_u64_or_0(reply, "poisoned_bytes"));
	snprintf(text, sizeof(text),
		"%s%s%s%s: %" PRIu64 " error%s; %" PRIu64 " check%s, %" PRIu64 " skipped, %s spent",
		is_poison ? "poison" : "", is_poison && is_guard ? ", " : "", is_guard ? "guard" : "",
		json_is_true(json_object_get(reply, "full")) ? ", full" : "", errors, stat_plural(errors), checks,
		stat_plural(checks), stat_reply_u64_or_0(reply, "skipped"), time);
	stat_print_lines(text, stat_width());
	snprintf(text, sizeof(text),
		"watched: %" PRIu64 " of %" PRIu64 " block%s that the program holds, and %s in %" PRIu64
		" piece%s that it has freed",
		stat_reply_u64_or_0(reply, "guarded_blocks"), held, stat_plural(held), bytes, pieces,
		stat_plural(pieces));
	stat_print_lines(text, stat_width());
}

static void print_check(const json_t *check)
{
	uint64_t blocks = stat_reply_u64_or_0(check, "blocks"), errors = stat_reply_u64_or_0(check, "errors");
	char time[STAT_TEXT_MAX];

	if (!json_is_object(check))
		return;
	stat_duration(time, stat_reply_u64_or_0(check, "ns"));
	printf("checked %" PRIu64 " of these in %s: %" PRIu64 " error%s, %" PRIu64 " skipped%s\n", blocks, time, errors,
		stat_plural(errors), stat_reply_u64_or_0(check, "skipped"),
		json_is_true(json_object_get(check, "truncated")) ? "; time ran out before the last" : "");
}

/* Translates a word of the answer for the user. */
static const char *translate(const json_t *report, const char *key, const char *const (*words)[2], size_t n)
{
	const char *word = stat_reply_text(report, key);

	for (size_t i = 0; i < n; i++)
		if (strcmp(words[i][0], word) == 0)
			return words[i][1];
	return "?";
}

static void print_offset(const json_t *report)
{
	char bytes[STAT_TEXT_MAX + 2];
	uint64_t n = stat_reply_u64_or_0(report, "n_wrong");

	stat_clean(bytes, sizeof(bytes), stat_reply_text(report, "bytes"));
	printf("  found: %" PRIu64 " wrong byte%s, from offset %+" PRId64 ": %s\n", n, stat_plural(n),
		(int64_t)json_integer_value(json_object_get(report, "offset")), bytes);
}

static void print_origin(const json_t *report, struct stat_stacks *stacks, const char *word, const char *age_key)
{
	const json_t *frames = json_object_get(report, word);
	char title[2 * STAT_TEXT_MAX], age[STAT_TEXT_MAX];
	uint64_t ns;

	if (!stat_reply_u64(report, age_key, &ns))
		return;
	stat_duration(age, ns);
	snprintf(title, sizeof(title), "%s %s before", word, age);
	if (json_array_size(frames))
		stat_stacks_print(stacks, title, frames);
	else
		printf("  %s\n", title);
}

static void print_report(const json_t *report, struct stat_stacks *stacks)
{
	static const char *const kinds[][2] = {{"after-free", "after a free of"}, {"past-end", "past the end of"},
		{"before-start", "before the start of"}};
	static const char *const occasions[][2] = {{"free", "when it was freed"}, {"reuse", "before its reuse"},
		{"release", "when it went back to the driver"}, {"check", "by a check"}};
	char block[STAT_TEXT_MAX], age[STAT_TEXT_MAX], memory[STAT_TEXT_MAX] = "pinned";
	uint64_t device, times = stat_reply_u64_or_0(report, "times");

	stat_clean(block, sizeof(block), stat_reply_text(report, "block"));
	stat_age(age, stat_reply_u64_or_0(report, "age_ns"));
	if (stat_reply_u64(report, "device", &device))
		snprintf(memory, sizeof(memory), "device %" PRIu64, device);
	printf("\nwrite %s %s (%" PRIu64 " bytes, %s), seen %s, %s ago", translate(report, "what", kinds, 3), block,
		stat_reply_u64_or_0(report, "requested_bytes"), memory, translate(report, "seen", occasions, 4), age);
	if (times > 1)
		printf("; %" PRIu64 " such writes", times);
	putchar('\n');
	print_offset(report);
	print_origin(report, stacks, "allocated", "allocated_ns");
	print_origin(report, stacks, "freed", "freed_ns");
}

void stat_debug_show(const struct stat_process *process, const struct stat_options *options)
{
	const json_t *reports = json_object_get(process->reply, "reports"), *report;
	struct stat_stacks *stacks;
	size_t i;

	if (!json_is_true(json_object_get(process->reply, "is_on"))) {
		puts("memory debugging is off; to use it: gpupool-run --debug=poison,guard COMMAND");
		return;
	}
	stacks = stat_stacks_new(process->reply, process->pid, process->uid);
	print_head(process->reply);
	print_check(json_object_get(process->reply, "check"));
	json_array_foreach(reports, i, report)
		print_report(report, stacks);
	stat_stacks_free(stacks);
}

enum stat_exit stat_debug_run(const struct stat_command *command, const struct stat_options *options)
{
	return stat_command_ask(command, options, options->is_check ? "debug check\n" : "debug\n");
}
