/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "stat_look.h"

#include <langinfo.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct {
	const char *name, *glyph, *ascii;
	int color;
} parts[STAT_N_PARTS] = {
	[STAT_PART_USED] = {"used", "\xe2\x96\x88", "#", 2},
	[STAT_PART_WASTE] = {"rounding", "!", "!", 1},
	[STAT_PART_PENDING] = {"pending", "\xe2\x96\x93", "+", 3},
	[STAT_PART_RETURNING] = {"returning", "\xe2\x96\x9a", "~", 5},
	[STAT_PART_CACHED] = {"cached", "\xe2\x96\x92", "=", 6},
	[STAT_PART_OUTSIDE] = {"outside", "\xe2\x96\x91", "o", 4},
	[STAT_PART_FREE] = {"free", "\xc2\xb7", ".", -1},
};

static bool is_set(const char *name)
{
	const char *value = getenv(name);

	return value && *value;
}

struct stat_look stat_look_of(const struct stat_options *options)
{
	const char *term = getenv("TERM");

	return (struct stat_look){
		.is_ascii = options->is_ascii || strcmp(nl_langinfo(CODESET), "UTF-8") != 0,
		.has_color = !options->has_no_color && !is_set("NO_COLOR") && isatty(STDOUT_FILENO) && term &&
			     strcmp(term, "dumb") != 0,
	};
}

const char *stat_look_glyph(struct stat_look look, enum stat_part part)
{
	return look.is_ascii ? parts[part].ascii : parts[part].glyph;
}

const char *stat_look_name(enum stat_part part)
{
	return parts[part].name;
}

const char *stat_look_level(struct stat_look look, unsigned level)
{
	static const char *const levels[] = {"\xe2\x96\x81", "\xe2\x96\x82", "\xe2\x96\x83", "\xe2\x96\x84",
		"\xe2\x96\x85", "\xe2\x96\x86", "\xe2\x96\x87", "\xe2\x96\x88"};
	static const char *const digits[] = {"1", "2", "3", "4", "6", "7", "8", "#"};

	return look.is_ascii ? digits[level - 1] : levels[level - 1];
}

int stat_look_color(enum stat_part part)
{
	return parts[part].color;
}

void stat_look_begin(struct stat_look look, enum stat_part part)
{
	if (look.has_color && parts[part].color >= 0)
		printf("\033[3%dm", parts[part].color);
}

void stat_look_end(struct stat_look look)
{
	if (look.has_color)
		fputs("\033[m", stdout);
}
