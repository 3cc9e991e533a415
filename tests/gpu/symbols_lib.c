/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Two libraries for test_symbols.c, which differ in the kind of their hash table and in KIND. */

#include <unistd.h>

extern int symbols_variable;
int symbols_answer(void);
int symbols_process(void);

int symbols_variable = KIND;

int symbols_answer(void)
{
	return KIND;
}

/* The library needs getpid, and does not have it. */
int symbols_process(void)
{
	return (int)getpid() + symbols_variable;
}
