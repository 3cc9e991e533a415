/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* Names of files, threads and programs come from anywhere, and are shown on terminals and in logs. */

#include <stddef.h>
#include <stdint.h>

/* The character at text, 0 if there is no valid one, and its length in bytes (1 then). */
uint32_t gp_utf8_decode(const char *text, size_t *length);

/*
 * Copies a text without what could steer a terminal or pass for another text: control characters, marks that turn the
 * direction of writing, and characters that cannot be seen become '?', and so does invalid UTF-8. Cut at the end of a
 * character. The copy may be in place of the text.
 */
void gp_clean(char *clean, size_t size, const char *text);
