/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "top_screen.h"

#include <curses.h>
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <wchar.h>

#include "common/clean.h"
#include "tools/text/stat_say.h"
#include "top_terminfo.h"

struct terminal {
	struct top_screen screen;
	SCREEN *curses;
	bool is_open;
};

static struct terminal terminal;

/* Sequences that some terminals send for these keys in any mode. */
static const struct {
	const char *text;
	int key;
} arrows[] = {
	{"\033[A", KEY_UP},
	{"\033[B", KEY_DOWN},
	{"\033[C", KEY_RIGHT},
	{"\033[D", KEY_LEFT},
	{"\033[H", KEY_HOME},
	{"\033[F", KEY_END},
};

static void set_modes(struct top_screen *screen)
{
	cbreak();
	noecho();
	nonl();
	keypad(stdscr, TRUE);
	nodelay(stdscr, TRUE);
	set_escdelay(50);
	for (size_t i = 0; i < sizeof(arrows) / sizeof(arrows[0]); i++)
		define_key(arrows[i].text, arrows[i].key);
	curs_set(0);
	screen->look.has_color = screen->look.has_color && has_colors() && start_color() == OK;
	if (!screen->look.has_color)
		return;
	use_default_colors();
	for (int i = 0; i < STAT_N_PARTS; i++)
		init_pair((short)(i + 1), (short)stat_look_color((enum stat_part)i), -1);
}

/* Restores the terminal before the program ends, so that its message can be seen. */
static void restore_terminal(void)
{
	endwin();
}

struct top_screen *top_screen_open(const struct stat_options *options)
{
	if (!isatty(STDOUT_FILENO) || !isatty(STDIN_FILENO)) {
		stat_error("gpupool-stat list --watch=1 prints lines.", "top needs a terminal.");
		return NULL;
	}
	if (top_terminfo_can_draw())
		terminal.curses = newterm(NULL, stdout, stdin);
	if (!terminal.curses) {
		stat_error("set TERM to the type of the terminal, such as xterm.",
			"top does not know how to draw on this terminal.");
		return NULL;
	}
	terminal.screen.look = stat_look_of(options);
	terminal.is_open = true;
	stat_before_end(restore_terminal);
	set_modes(&terminal.screen);
	getmaxyx(stdscr, terminal.screen.rows, terminal.screen.columns);
	return &terminal.screen;
}

void top_screen_close(struct top_screen *screen)
{
	if (!terminal.is_open)
		return;
	terminal.is_open = false;
	stat_before_end(NULL);
	endwin();
	delscreen(terminal.curses);
}

void top_screen_leave(struct top_screen *screen)
{
	endwin();
}

void top_screen_enter(struct top_screen *screen)
{
	endwin(); /* so that refresh() sets all modes of the terminal again */
	refresh();
	top_screen_resize(screen);
	clearok(curscr, TRUE);
}

void top_screen_resize(struct top_screen *screen)
{
	struct winsize size;

	if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row && size.ws_col)
		resizeterm(size.ws_row, size.ws_col);
	getmaxyx(stdscr, screen->rows, screen->columns);
	clearok(curscr, TRUE);
}

void top_screen_clear(const struct top_screen *screen)
{
	erase();
}

void top_screen_show(const struct top_screen *screen)
{
	refresh();
}

static attr_t attributes(unsigned style)
{
	return (style & TOP_BOLD ? A_BOLD : 0) | (style & TOP_REVERSE ? A_REVERSE : 0) | (style & TOP_DIM ? A_DIM : 0);
}

/* Gets the next character, or '?' if it cannot be shown, and its columns. Returns its length in bytes. */
static size_t take_character(const char *text, struct stat_look look, wchar_t *ret, int *ret_columns)
{
	mbstate_t state = {0};
	size_t n = mbrtowc(ret, text, strlen(text), &state);

	*ret_columns = 1;
	if (n == 0 || n > strlen(text)) { /* not in this locale: all of its bytes become one '?' */
		*ret = L'?';
		(void)gp_utf8_decode(text, &n);
		return n;
	}
	*ret_columns = wcwidth(*ret);
	if (*ret_columns >= 1 && (!look.is_ascii || *ret < 0x7f))
		return n;
	*ret = L'?';
	*ret_columns = 1;
	return n;
}

int top_screen_put(const struct top_screen *screen, int row, int column, int columns, unsigned style, const char *text)
{
	int end = column + columns < screen->columns ? column + columns : screen->columns;

	if (row < 0 || row >= screen->rows || column < 0)
		return column;
	while (*text) {
		wchar_t wide[2] = {0};
		cchar_t cell;
		int width;
		size_t n = take_character(text, screen->look, wide, &width);

		if (column + width > end)
			break;
		setcchar(&cell, wide, attributes(style), 0, NULL);
		mvadd_wch(row, column, &cell);
		column += width;
		text += n;
	}
	return column;
}

void top_screen_part(const struct top_screen *screen, int row, int column, enum stat_part part, const char *glyph)
{
	bool has_color = screen->look.has_color && stat_look_color(part) >= 0;
	wchar_t wide[2] = {0};
	cchar_t cell;
	int width;

	if (row < 0 || row >= screen->rows || column < 0 || column >= screen->columns)
		return;
	take_character(glyph, screen->look, wide, &width);
	setcchar(&cell, wide, 0, (short)(has_color ? part + 1 : 0), NULL);
	mvadd_wch(row, column, &cell);
}

void top_screen_fill(const struct top_screen *screen, int row, unsigned style)
{
	if (row < 0 || row >= screen->rows)
		return;
	mvhline(row, 0, ' ' | attributes(style), screen->columns);
}

static const struct {
	int curses, key;
} keys[] = {
	{KEY_UP, TOP_KEY_UP},
	{KEY_DOWN, TOP_KEY_DOWN},
	{KEY_LEFT, TOP_KEY_LEFT},
	{KEY_RIGHT, TOP_KEY_RIGHT},
	{KEY_PPAGE, TOP_KEY_PAGE_UP},
	{KEY_NPAGE, TOP_KEY_PAGE_DOWN},
	{KEY_HOME, TOP_KEY_HOME},
	{KEY_END, TOP_KEY_END},
	{KEY_ENTER, TOP_KEY_ENTER},
	{'\r', TOP_KEY_ENTER},
	{'\n', TOP_KEY_ENTER},
	{27, TOP_KEY_ESCAPE},
	{KEY_BACKSPACE, TOP_KEY_BACKSPACE},
	{127, TOP_KEY_BACKSPACE},
	{8, TOP_KEY_BACKSPACE},
	{KEY_F(1), TOP_KEY_HELP},
	{KEY_F(4), TOP_KEY_FILTER},
	{KEY_F(6), TOP_KEY_SORT},
};

/* Returns true if the terminal was closed, so that no key can be pressed again. */
static bool is_closed(void)
{
	struct pollfd in = {.fd = STDIN_FILENO, .events = POLLIN};

	return poll(&in, 1, 0) > 0 && in.revents & (POLLHUP | POLLERR | POLLNVAL);
}

int top_screen_key(const struct top_screen *screen)
{
	int key = getch();

	if (key == ERR)
		return is_closed() ? TOP_KEY_CLOSED : 0;
	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
		if (keys[i].curses == key)
			return keys[i].key;
	return key == '\t' || (key >= ' ' && key < 256) ? key : TOP_KEY_OTHER;
}
