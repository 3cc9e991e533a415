/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * How gpupool-stat speaks to its user: exit codes, errors on stderr, and texts of other processes
 * made fit for a terminal.
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

/* What went wrong, and in next what to do about it, unless that is NULL. */
void stat_error(const char *next, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Tells on stderr what was done, where the output goes elsewhere. */
void stat_note(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* What an allocation returned, or the end of the program with STAT_FAILED; before it fn is called, unless NULL. */
void *stat_alloc(void *memory);
void stat_before_end(void (*fn)(void));

/* Copies a text without what could steer a terminal or pass for another text (shim/clean.h). */
void stat_clean(char *clean, size_t size, const char *text);

/* Columns that a terminal gives to a clean text: two for a Chinese character, say, none for an accent that combines. */
size_t stat_columns(const char *text);

/* How many bytes of a clean text fit that many columns. */
size_t stat_cut(const char *text, size_t columns);
