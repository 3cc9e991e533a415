/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* The terminal, with its current size. Everything that is written is clipped at its edges. */

#include <stdbool.h>
#include <stddef.h>

#include "tools/answer/stat_look.h"

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

/* Takes over the terminal. Returns NULL, after a message, if it is not possible to draw on it. */
struct top_screen *top_screen_open(const struct stat_options *options);

/* Restores the terminal. May be called twice. */
void top_screen_close(struct top_screen *screen);

/* Leave the screen before the process stops, and enter it when another program may have written to the terminal. */
void top_screen_leave(struct top_screen *screen);
void top_screen_enter(struct top_screen *screen);

/* Asks the terminal for its size. */
void top_screen_resize(struct top_screen *screen);

void top_screen_clear(const struct top_screen *screen);
void top_screen_show(const struct top_screen *screen);

/* Writes a clean text, at most that many columns of it. Returns the column after the text. */
int top_screen_put(const struct top_screen *screen, int row, int column, int columns, unsigned style, const char *text);

/* Writes a character, one column wide, in the colour of a part. */
void top_screen_part(const struct top_screen *screen, int row, int column, enum stat_part part, const char *glyph);

/* Fills a whole row in a style, before text is written on it. */
void top_screen_fill(const struct top_screen *screen, int row, unsigned style);

/* The keys that top_screen_key() returns, beside characters; it returns 0 if no key was pressed. */
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
	TOP_KEY_CLOSED, /* the terminal was closed */
};
int top_screen_key(const struct top_screen *screen);
