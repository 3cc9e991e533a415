/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "replay_conclude.h"

#include <inttypes.h>
#include <stdio.h>

#include "tools/text/stat_shell.h"
#include "tools/text/stat_text.h"

enum { SENTENCE_MAX = 512, WORDS_MAX = 2 * GP_RECORD_COMMAND_MAX, COMMAND_MAX = WORDS_MAX + 128 };

/* Another pool type is recommended only if it takes at most this share of the memory. */
#define WORTH_A_CHANGE 0.97

struct replay_option replay_option_of(const struct replay_result *result)
{
	return (struct replay_option){
		.kind = result->settings.kind,
		.fits = !result->n_refused,
		.limit_bytes = result->settings.limit_bytes,
		.peak_bytes = result->peak_total_bytes,
		.driver_calls = replay_driver_calls(result),
	};
}

/*
 * The recorded pool type is always eligible. Of the others, vmm and split take little memory with few driver calls. If
 * the program shares memory, legacy IPC needs whole driver allocations, which simple and binned have, and vmm has none.
 */
static bool is_eligible(const struct replay_contents *contents, enum gp_kind kind)
{
	switch (kind) {
	case GP_KIND_SPLIT:
		return true;
	case GP_KIND_VMM:
		return kind == contents->kind || !contents->n_exports;
	case GP_KIND_SIMPLE:
	case GP_KIND_BINNED:
		return kind == contents->kind || contents->n_exports;
	default:
		return kind == contents->kind;
	}
}

void replay_conclude(struct replay_conclusion *c, const struct replay_contents *contents,
	const struct replay_option *options, size_t n)
{
	*c = (struct replay_conclusion){0};
	for (size_t i = 0; i < n; i++) {
		const struct replay_option *o = &options[i];

		if (o->kind == contents->kind) {
			c->before = *o;
			c->has_before = true;
		}
		if (!o->fits || !is_eligible(contents, o->kind))
			continue;
		if (!c->has_after || o->peak_bytes < c->after.peak_bytes)
			c->after = *o;
		c->has_after = true;
	}
	if (c->has_before && c->has_after && c->before.fits &&
		(double)c->after.peak_bytes > WORTH_A_CHANGE * (double)c->before.peak_bytes)
		c->after = c->before;
}

/* Limits are multiples of a MiB. */
static void write_command(
	char command[static COMMAND_MAX], const struct replay_contents *contents, const struct replay_option *after)
{
	char limit[STAT_TEXT_MAX] = "", words[WORDS_MAX];

	if (after->limit_bytes != GP_NO_LIMIT)
		snprintf(limit, sizeof(limit), " --limit=%" PRIu64 "MiB", after->limit_bytes / GP_MIB);
	stat_shell_command(words, sizeof(words), contents->command, contents->command_length);
	snprintf(command, COMMAND_MAX, "gpupool-run --pool=%s%s %s", gp_kind_name(after->kind), limit, words);
}

static double percent_less(uint64_t after, uint64_t before)
{
	return before ? 100 * (1 - (double)after / (double)before) : 0;
}

static void write_comparison(
	char text[static SENTENCE_MAX], const struct replay_contents *contents, const struct replay_conclusion *c)
{
	char after[STAT_TEXT_MAX], before[STAT_TEXT_MAX], saved[STAT_TEXT_MAX];
	const char *name = gp_kind_name(c->before.kind), *why = contents->is_text ? "the default" : "as recorded";

	stat_bytes(after, c->after.peak_bytes);
	stat_bytes(before, c->before.peak_bytes);
	if (c->after.kind != c->before.kind && c->after.peak_bytes >= c->before.peak_bytes)
		snprintf(text, SENTENCE_MAX,
			"This is expected to take %s from the driver at its peak, and %s, %s, takes %s.", after, name,
			why, before);
	else if (c->after.peak_bytes >= c->before.peak_bytes)
		snprintf(text, SENTENCE_MAX,
			"%s, %s, is expected to take %s from the driver at its peak, and no other pool type clearly "
			"less.",
			name, why, after);
	else {
		stat_bytes(saved, c->before.peak_bytes - c->after.peak_bytes);
		snprintf(text, SENTENCE_MAX,
			"This is expected to take %s from the driver at its peak instead of %s with %s, %s: %s "
			"(%.0f%%) "
			"less, with %" PRIu64 " instead of %" PRIu64 " driver calls.",
			after, before, name, why, saved, percent_less(c->after.peak_bytes, c->before.peak_bytes),
			c->after.driver_calls, c->before.driver_calls);
	}
}

static void write_sentence(
	char text[static SENTENCE_MAX], const struct replay_contents *contents, const struct replay_conclusion *c)
{
	char after[STAT_TEXT_MAX];

	stat_bytes(after, c->after.peak_bytes);
	if (!c->has_after)
		snprintf(text, SENTENCE_MAX, "%s",
			c->has_before ? "No pool type that suits the program serves all allocations that the "
					"recorded process was served."
				      : "This pool type does not serve all allocations that the recorded process was "
					"served.");
	else if (!c->has_before)
		snprintf(text, SENTENCE_MAX,
			"This is expected to take %s from the driver at its peak, %.2f times the memory that the "
			"program holds.",
			after,
			contents->peak_live_bytes ? (double)c->after.peak_bytes / (double)contents->peak_live_bytes
						  : 1);
	else if (!c->before.fits)
		snprintf(text, SENTENCE_MAX,
			"This is expected to serve all allocations with at most %s from the driver, which %s does not.",
			after, gp_kind_name(c->before.kind));
	else
		write_comparison(text, contents, c);
}

void replay_conclusion_show(const struct replay_contents *contents, const struct replay_conclusion *c)
{
	char text[SENTENCE_MAX], command[COMMAND_MAX];

	putchar('\n');
	if (c->has_after) {
		write_command(command, contents, &c->after);
		printf("    %s\n", command);
	}
	write_sentence(text, contents, c);
	stat_print_lines(text, stat_width());
}

static void set(json_t *object, const char *name, uint64_t value)
{
	json_object_set_new(object, name, json_integer((json_int_t)gp_min(value, INT64_MAX)));
}

json_t *replay_conclusion_json(const struct replay_contents *contents, const struct replay_conclusion *c)
{
	char text[SENTENCE_MAX], command[COMMAND_MAX];
	json_t *object;

	if (!c->has_after)
		return json_null();
	object = stat_alloc(json_object());
	write_command(command, contents, &c->after);
	write_sentence(text, contents, c);
	json_object_set_new(object, "pool", json_string(gp_kind_name(c->after.kind)));
	json_object_set_new(object, "limit_bytes",
		c->after.limit_bytes == GP_NO_LIMIT ? json_null() : json_integer((json_int_t)c->after.limit_bytes));
	set(object, "peak_bytes", c->after.peak_bytes);
	set(object, "driver_calls", c->after.driver_calls);
	json_object_set_new(
		object, "before_pool", c->has_before ? json_string(gp_kind_name(c->before.kind)) : json_null());
	set(object, "before_peak_bytes", c->has_before ? c->before.peak_bytes : 0);
	set(object, "before_driver_calls", c->has_before ? c->before.driver_calls : 0);
	set(object, "saved_bytes",
		c->has_before && c->before.peak_bytes > c->after.peak_bytes ? c->before.peak_bytes - c->after.peak_bytes
									    : 0);
	json_object_set_new(object, "command", json_string(command));
	json_object_set_new(object, "text", json_string(text));
	return object;
}
