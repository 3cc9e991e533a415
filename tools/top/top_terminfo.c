/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* A separate file, because term.h defines macros with names such as "columns". */

#include "top_terminfo.h"

#include <curses.h>
#include <term.h>
#include <unistd.h>

bool top_terminfo_can_draw(void)
{
	int error;
	const char *cup;
	bool can;

	if (setupterm(NULL, STDOUT_FILENO, &error) != OK)
		return false;
	cup = tigetstr("cup");
	can = cup && cup != (const char *)-1;
	del_curterm(cur_term);
	return can;
}
