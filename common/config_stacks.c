/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "config_stacks.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* Reads a text that consists of a whole number from 1 to max. */
static bool parse_positive(const char *text, unsigned max, unsigned *ret)
{
	unsigned value = 0;

	for (; *text >= '0' && *text <= '9' && value <= max; text++)
		value = value * 10 + (unsigned)(*text - '0');
	if (*text || !value || value > max)
		return false;
	*ret = value;
	return true;
}

bool gp_config_stacks_depth(const char *text, struct gp_config_stacks *ret)
{
	return parse_positive(text, GP_STACKS_DEPTH_MAX, &ret->depth);
}

bool gp_config_stacks_sample(const char *text, struct gp_config_stacks *ret)
{
	static const char name[] = "sample=";

	return strncmp(text, name, strlen(name)) == 0 &&
	       parse_positive(text + strlen(name), GP_STACKS_SAMPLE_MAX, &ret->sample);
}

int gp_config_stacks_parse(const char *text, struct gp_config_stacks *ret, struct gp_text_error *error)
{
	struct gp_config_stacks stacks = {.sample = 1};
	char depth[16];
	size_t length;

	*error = (struct gp_text_error){.next = "as in on, 16, or 16,sample=100"};
	if (gp_text_is_word(text, strlen(text), "on"))
		text = GP_STACKS_ON;
	if (gp_text_is_word(text, strlen(text), "off")) {
		*ret = stacks;
		return 0;
	}
	length = strcspn(text, ",");
	snprintf(depth, sizeof(depth), "%.*s", (int)(length < sizeof(depth) ? length : 0), text);
	if (length >= sizeof(depth) || !gp_config_stacks_depth(depth, &stacks)) {
		error->why = "is neither on, off nor a depth from 1 to 64";
		return -EINVAL;
	}
	if (text[length] && !gp_config_stacks_sample(text + length + 1, &stacks)) {
		error->offset = length + 1;
		error->why = "has something other than sample=N after the depth";
		return -EINVAL;
	}
	*ret = stacks;
	return 0;
}
