/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "config_regions.h"

#include <errno.h>
#include <string.h>

static const struct {
	const char *word;
	bool needs_pattern, takes_name;
} ways[] = {
	[GP_REGION_BY_NVTX] = {"nvtx", false, false},
	[GP_REGION_BY_THREAD] = {"thread", true, true},
	[GP_REGION_BY_LIBRARY] = {"lib", true, true},
	[GP_REGION_COLD] = {"cold", true, false},
};

/* Copies a part of a rule. Returns false if it is empty, too long, or not printable. */
static bool take_text(char to[static GP_REGION_TEXT_MAX], const char *from, size_t length)
{
	if (!length || length >= GP_REGION_TEXT_MAX)
		return false;
	for (size_t i = 0; i < length; i++)
		if (from[i] < ' ' || from[i] > '~')
			return false;
	memcpy(to, from, length);
	to[length] = '\0';
	return true;
}

/* Reads the text after the equals sign. */
static bool take_pattern(struct gp_region_rule *rule, const char *text, size_t length)
{
	const char *colon = ways[rule->way].takes_name ? memchr(text, ':', length) : NULL;
	size_t before = colon ? (size_t)(colon - text) : length;

	if (!take_text(rule->pattern, text, before))
		return false;
	return !colon || take_text(rule->name, colon + 1, length - before - 1);
}

static bool take_rule(struct gp_region_rule *rule, const char *text, size_t length)
{
	size_t word_length = strcspn(text, "=,");

	*rule = (struct gp_region_rule){.pattern = "*"};
	for (size_t i = 0; i < sizeof(ways) / sizeof(*ways); i++) {
		if (!gp_text_is_word(text, word_length, ways[i].word))
			continue;
		rule->way = (enum gp_region_way)i;
		if (word_length == length)
			return !ways[i].needs_pattern;
		return take_pattern(rule, text + word_length + 1, length - word_length - 1);
	}
	return false;
}

int gp_config_regions_parse(const char *text, struct gp_config_regions *ret, struct gp_text_error *error)
{
	struct gp_config_regions regions = {0};
	size_t at = 0, length;

	*error = (struct gp_text_error){.next = "as in nvtx, nvtx=forward*, thread=io* or lib=libfft.so*:fft"};
	if (gp_text_is_word(text, strlen(text), "off")) {
		*ret = regions;
		return 0;
	}
	do {
		length = strcspn(text + at, ",");
		error->offset = at;
		if (regions.n == GP_REGION_RULES_MAX) {
			error->why = "has more than 16 rules";
			return -EINVAL;
		}
		if (!take_rule(&regions.rules[regions.n++], text + at, length)) {
			error->why = "is neither off nor a list of rules";
			return -EINVAL;
		}
		at += length;
	} while (text[at++]);
	*ret = regions;
	return 0;
}

bool gp_config_regions_has(const struct gp_config_regions *regions, enum gp_region_way way)
{
	for (unsigned i = 0; i < regions->n; i++)
		if (regions->rules[i].way == way)
			return true;
	return false;
}

bool gp_config_regions_is_cold(const struct gp_config_regions *regions, const char *name)
{
	for (unsigned i = 0; i < regions->n; i++)
		if (regions->rules[i].way == GP_REGION_COLD &&
			gp_region_pattern_matches(regions->rules[i].pattern, name))
			return true;
	return false;
}

/* After a mismatch the last star takes one more character, and the rest of the pattern is compared again. */
bool gp_region_pattern_matches(const char *pattern, const char *text)
{
	const char *star = NULL, *taken = NULL;

	while (*text) {
		if (*pattern == '*') {
			star = pattern++;
			taken = text;
		} else if (*pattern == '?' || *pattern == *text) {
			pattern++;
			text++;
		} else if (star) {
			pattern = star + 1;
			text = ++taken;
		} else {
			return false;
		}
	}
	while (*pattern == '*')
		pattern++;
	return !*pattern;
}
