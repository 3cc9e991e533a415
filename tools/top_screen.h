/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* The terminal, as large as it is just now. Whatever is written ends at its edges. */

#include <stdbool.h>
#include <stddef.h>

#include "stat_look.h"

struct top_screen {
	struct stat_look look;
	int rows, columns;
};

enum {
	TOP_PLAIN = 0,
	TOP_BOLD = 1,
	TOP_REVERSE = 2,
	TOP_DIM = 4,
};

/* Whether something is known of the terminal, and the cursor can be sent anywhere on it. */
bool top_terminfo_can_draw(void);

/* Takes the terminal over; NULL and a message if it is none that can be drawn on. */
struct top_screen *top_screen_open(const struct stat_options *options);

/* Gives it back as it was. Safe to be called twice. */
void top_screen_close(struct top_screen *screen);

/* For the time that the process is stopped, or after somebody else may have written there. */
void top_screen_leave(struct top_screen *screen);
void top_screen_enter(struct top_screen *screen);

/* Asks the terminal for its size. */
void top_screen_resize(struct top_screen *screen);

void top_screen_clear(const struct top_screen *screen);
void top_screen_show(const struct top_screen *screen);

/* A clean text from there on, at most so many columns of it. Returns the column behind it. */
int top_screen_put(
	const struct top_screen *screen, int row, int column, int columns, unsigned style, const char *text);

/* One column of a part. */
void top_screen_part(const struct top_screen *screen, int row, int column, enum stat_part part, const char *glyph);

/* The whole line in that style, for what is written next. */
void top_screen_fill(const struct top_screen *screen, int row, unsigned style);

/* A key that was pressed, or 0: none. */
enum {
	TOP_KEY_UP = 256,
	TOP_KEY_DOWN,
	TOP_KEY_LEFT,
	TOP_KEY_RIGHT,
	TOP_KEY_PAGE_UP,
	TOP_KEY_PAGE_DOWN,
	TOP_KEY_HOME,
	TOP_KEY_END,
	TOP_KEY_ENTER,
	TOP_KEY_ESCAPE,
	TOP_KEY_BACKSPACE,
	TOP_KEY_HELP,
	TOP_KEY_FILTER,
	TOP_KEY_SORT,
	TOP_KEY_OTHER,
	TOP_KEY_GONE, /* there is no terminal any more */
};
int top_screen_key(const struct top_screen *screen);
