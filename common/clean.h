/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* Cleans names of files, threads and programs, which may hold any bytes, before they reach a terminal or a log. */

#include <stddef.h>
#include <stdint.h>

/* Returns the character at text and its length in bytes. For invalid UTF-8 it returns 0, with a length of 1. */
uint32_t gp_utf8_decode(const char *text, size_t *length);

/*
 * Copies a text so that it cannot control a terminal or pass for another text. Control characters, marks that change
 * the direction of writing, invisible characters and invalid UTF-8 become '?'. The copy is cut at the end of a
 * character if it does not fit. `clean` and `text` may be the same buffer.
 */
void gp_clean(char *clean, size_t size, const char *text);
