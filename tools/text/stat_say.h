/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * The exit codes and messages of gpupool-stat, and functions that make texts of other processes safe for a terminal.
 */

#include <stddef.h>

enum stat_exit {
	STAT_OK = 0,
	STAT_FAILED = 1,
	STAT_USAGE = 2,
	STAT_NO_PROCESS = 3,
	STAT_NOT_PERMITTED = 4,
	STAT_NO_ANSWER = 5,
	STAT_OTHER_VERSION = 6,
};

/* Prints an error on stderr. next: what the user can do about it, or NULL. */
void stat_error(const char *next, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Reports on stderr what was done, if the output goes elsewhere. */
void stat_note(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Returns memory, or ends the program with STAT_FAILED if it is NULL; before that fn is called, unless it is NULL. */
void *stat_alloc(void *memory);
void stat_before_end(void (*fn)(void));

/* Copies a text without characters that could control a terminal or imitate another text (common/clean.h). */
void stat_clean(char *clean, size_t size, const char *text);

/* Returns the columns of a clean text on a terminal: two for a Chinese character, none for a combining accent. */
size_t stat_columns(const char *text);

/* Returns how many bytes of a clean text fit in that many columns. */
size_t stat_cut(const char *text, size_t columns);
