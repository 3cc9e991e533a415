/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* The rows of options.def: stores the value of an option, and prints its line of --help. */

#include "stat_option.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/nearest.h"
#include "common/size.h"
#include "tools/replay/replay_holders.h"
#include "tools/text/stat_number.h"
#include "tools/text/stat_say.h"

static bool take_flag(void *member, const char *text)
{
	*(bool *)member = true;
	return true;
}

static bool take_text(void *member, const char *text)
{
	*(const char **)member = text;
	return true;
}

/* Parses seconds, which may have a fraction, within these bounds. Returns milliseconds. */
static bool parse_seconds(const char *text, double least, double most, uint64_t *ret_ms)
{
	char *end;
	double seconds = strtod(text, &end);

	if (end == text || *end || !(seconds >= least && seconds <= most))
		return false;
	*ret_ms = (uint64_t)(seconds * 1000 + 0.5);
	return true;
}

static bool take_timeout(void *member, const char *text)
{
	uint64_t ms;

	if (!parse_seconds(text, 0.001, 86400, &ms)) {
		stat_error("as in: --timeout=0.5", "--timeout: '%s' is not a number of seconds from 0.001 to 86400.",
			text);
		return false;
	}
	*(int *)member = (int)ms;
	return true;
}

static bool take_name(void *member, const char *text)
{
	struct stat_names *names = member;

	if (!*text || names->n == STAT_NAMES_MAX) {
		stat_error(*text ? NULL : "as in: --drop=kv",
			*text ? "--drop: more than %d regions." : "--drop: '' is not the name of a region.",
			STAT_NAMES_MAX);
		return false;
	}
	names->names[names->n++] = text;
	return true;
}

static bool take_blocks(void *member, const char *text)
{
	if (stat_number_parse(text, UINT64_MAX - 1, member))
		return true;
	stat_error("as in: -n 20", "-n: '%s' is not a number of blocks.", text);
	return false;
}

static bool take_device(void *member, const char *text)
{
	uint64_t number;

	*(const char **)member = text;
	if (strlen(text) <= 4 && stat_number_parse(text, INT_MAX, &number))
		return true;
	stat_error("as in: --device=0", "--device: '%s' is not the number of a device.", text);
	return false;
}

static bool take_job(void *member, const char *text)
{
	*(const char **)member = text;
	if (*text)
		return true;
	stat_error("as in: --job=8812", "--job: '' is not the name of a job.");
	return false;
}

static bool take_at(void *member, const char *text)
{
	struct replay_moment unused;

	*(const char **)member = text;
	if (replay_moment_parse(text, &unused))
		return true;
	stat_error("use peak, end or a number of seconds since the start, as in 12.5.", "--at: '%s' is not a moment.",
		text);
	return false;
}

static bool take_min(void *member, const char *text)
{
	struct gp_text_error error;

	if (gp_size_parse(text, member, &error) == 0)
		return true;
	stat_error(error.next ? error.next : "as in: --min=1MiB", "--min: '%s' %s.", text, error.why);
	return false;
}

static bool take_older(void *member, const char *text)
{
	if (parse_seconds(text, 0, 1e9, member))
		return true;
	stat_error("as in: --older=60", "--older: '%s' is not a number of seconds.", text);
	return false;
}

static bool take_watch(void *member, const char *text)
{
	uint64_t ms;

	if (!parse_seconds(text, 0.01, 86400, &ms)) {
		stat_error("as in: --watch=5", "--watch: '%s' is not a number of seconds from 0.01 to 86400.", text);
		return false;
	}
	*(int *)member = (int)ms;
	return true;
}

static bool take_count(void *member, const char *text)
{
	uint64_t *count = member;

	if (stat_number_parse(text, INT64_MAX, count) && *count)
		return true;
	stat_error("as in: --count=10", "--count: '%s' is not a number of answers, from 1.", text);
	return false;
}

static const struct row {
	const char *name, *value, *help;
	char letter;
	bool (*take)(void *member, const char *text);
	size_t member;
} rows[STAT_N_OPTIONS] = {
#define OPTION(id, name, letter, type, member, function, value, help) \
	{name, value, help, letter, function, offsetof(struct stat_options, member)},
#include "tools/ask/options.def"
};

void stat_option_fill(struct stat_getopt *ret)
{
	size_t n = 0;

	ret->letters[n++] = ':';
	for (int i = 0; i < STAT_N_OPTIONS; i++) {
		bool has_value = *rows[i].value;

		ret->longs[i] = (struct option){
			rows[i].name, has_value ? required_argument : no_argument, NULL, STAT_GETOPT_FIRST + i};
		if (rows[i].letter)
			ret->letters[n++] = rows[i].letter;
		if (rows[i].letter && has_value)
			ret->letters[n++] = ':';
	}
	ret->letters[n] = '\0';
	ret->longs[STAT_N_OPTIONS] = (struct option){0};
}

int stat_option_of(int key)
{
	if (key >= STAT_GETOPT_FIRST)
		return key - STAT_GETOPT_FIRST;
	for (int i = 0; i < STAT_N_OPTIONS; i++)
		if (rows[i].letter == key)
			return i;
	return -1;
}

bool stat_option_take(struct stat_options *options, int option, const char *value)
{
	return rows[option].take((char *)options + rows[option].member, value);
}

const char *stat_option_nearest(const char *word)
{
	struct gp_nearest nearest;

	gp_nearest_init_word(&nearest, word + strspn(word, "-"));
	for (int i = 0; i < STAT_N_OPTIONS; i++)
		gp_nearest_try(&nearest, rows[i].name);
	return nearest.name;
}

void stat_option_name(char text[static STAT_OPTION_NAME_MAX], int option)
{
	if (rows[option].letter)
		snprintf(text, STAT_OPTION_NAME_MAX, "-%c", rows[option].letter);
	else
		snprintf(text, STAT_OPTION_NAME_MAX, "--%s", rows[option].name);
}

void stat_option_print_help(uint64_t options)
{
	enum { WIDTH = 17 };

	for (int i = 0; i < STAT_N_OPTIONS; i++) {
		char left[64], letter[8] = "";
		const char *value = rows[i].value, *help = rows[i].help;

		if (!(options >> i & 1))
			continue;
		if (rows[i].letter)
			snprintf(letter, sizeof(letter), "-%c, ", rows[i].letter);
		snprintf(left, sizeof(left), "%s--%s%s%s", letter, rows[i].name, *value ? "=" : "", value);
		if (!*help)
			printf("  %s\n", left);
		else if (strlen(left) < WIDTH)
			printf("  %-*s%s\n", WIDTH, left, help);
		else
			printf("  %s\n  %*s%s\n", left, WIDTH, "", help);
	}
}
