/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "config_debug.h"

#include <errno.h>
#include <string.h>

static bool take_word(struct gp_config_debug *debug, const char *text, size_t length)
{
	const struct {
		const char *name;
		bool *field;
	} words[] = {{"poison", &debug->poison}, {"guard", &debug->guard}, {"full", &debug->full}};

	for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++) {
		if (!gp_text_is_word(text, length, words[i].name))
			continue;
		*words[i].field = true;
		return true;
	}
	return false;
}

int gp_config_debug_parse(const char *text, struct gp_config_debug *ret, struct gp_text_error *error)
{
	struct gp_config_debug debug = {0};
	size_t at = 0, length;

	*error = (struct gp_text_error){.next = "as in poison,guard, or poison,guard,full"};
	if (gp_text_is_word(text, strlen(text), "off")) {
		*ret = debug;
		return 0;
	}
	do {
		length = strcspn(text + at, ",");
		if (!take_word(&debug, text + at, length)) {
			error->offset = at;
			error->why = "is neither off nor a list of poison, guard and full";
			return -EINVAL;
		}
		at += length;
	} while (text[at++]);
	if (!gp_config_debug_is_on(&debug)) {
		error->why = "needs poison or guard besides full";
		return -EINVAL;
	}
	*ret = debug;
	return 0;
}
