/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* The characters and colours that draw memory on a screen. Without UTF-8 the characters are ASCII. */

#include "tools/ask/stat_options.h"

enum stat_part {
	STAT_PART_USED,
	STAT_PART_WASTE, /* used, and more than a quarter of it only by rounding */
	STAT_PART_PENDING,
	STAT_PART_RETURNING,
	STAT_PART_CACHED,
	STAT_PART_OUTSIDE,
	STAT_PART_FREE,
	STAT_N_PARTS
};

struct stat_look {
	bool is_ascii, has_color;
};

/* Chooses the look by the options, the locale that setlocale() has set, and the environment. */
struct stat_look stat_look_of(const struct stat_options *options);

/* Return the character of a part, one column wide, and its name in a legend. */
const char *stat_look_glyph(struct stat_look look, enum stat_part part);
const char *stat_look_name(enum stat_part part);

/* Returns a column that is filled to a level from 1 to 8, where 8 is full. In ASCII it is a digit, or '#' for 8. */
const char *stat_look_level(struct stat_look look, unsigned level);

/* Returns one of the eight terminal colours, from 0, or -1 for the default colour of text. */
int stat_look_color(enum stat_part part);

/* Switch stdout to the colour of a part, and back to the default. Without colours they print nothing. */
void stat_look_begin(struct stat_look look, enum stat_part part);
void stat_look_end(struct stat_look look);
