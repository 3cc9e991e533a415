/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "config_group.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define NAME_CHARACTERS "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-"

static int refuse(struct gp_text_error *error, size_t offset, const char *why)
{
	*error = (struct gp_text_error){.offset = offset, .why = why, .next = "as in 8GiB or train:8GiB"};
	return -EINVAL;
}

int gp_config_group_parse(const char *text, struct gp_config_group *ret, struct gp_text_error *error)
{
	struct gp_config_group group = {.is_on = true};
	const char *colon = strchr(text, ':');
	size_t length = colon ? (size_t)(colon - text) : 0, valid = strspn(text, NAME_CHARACTERS);
	const char *limits = colon ? colon + 1 : text;

	if (gp_text_is_word(text, strlen(text), "none")) {
		*ret = (struct gp_config_group){.is_on = false};
		return 0;
	}
	if (colon && !length)
		return refuse(error, 0, "has no name before the colon");
	if (colon && valid < length)
		return refuse(error, valid, "has a character in the name other than A-Z a-z 0-9 . _ -");
	if (length >= GP_GROUP_NAME_MAX)
		return refuse(error, GP_GROUP_NAME_MAX - 1, "has a name of more than 47 characters");
	snprintf(group.name, sizeof(group.name), "%.*s", (int)length, text);
	if (gp_limit_list_parse(limits, &group.limit, error) < 0) {
		error->offset += (size_t)(limits - text);
		return -EINVAL;
	}
	*ret = group;
	return 0;
}
