/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* What memory looks like on a screen: letters and colours, and where there are none of them, other letters. */

#include "stat_show.h"

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

/* By the options, the locale that setlocale() has set, and the environment. */
struct stat_look stat_look_of(const struct stat_options *options);

/* One column, and the name for a legend. */
const char *stat_look_glyph(struct stat_look look, enum stat_part part);
const char *stat_look_name(enum stat_part part);

/* A column that is filled up to a level from 1 to 8, of which the last is all of it; in ASCII a digit, or all of it. */
const char *stat_look_level(struct stat_look look, unsigned level);

/* One of the eight colours of terminals, from 0; -1: that of text. */
int stat_look_color(enum stat_part part);

/* To stdout: what follows is a part's, or no part's any more. Nothing without colours. */
void stat_look_begin(struct stat_look look, enum stat_part part);
void stat_look_end(struct stat_look look);
