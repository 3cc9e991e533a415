/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* Words as a shell reads them, so that a line can be pasted. */

#include <stdbool.h>
#include <stddef.h>

/* True if a shell reads the word as it is. */
bool stat_shell_is_plain(const char *word);

/*
 * Writes the arguments of a command, of which each ends with a byte of 0. Writes COMMAND instead if there is none, if
 * the text does not fit, or if it has characters that cannot be shown.
 */
void stat_shell_command(char *text, size_t size, const char *words, size_t length);
