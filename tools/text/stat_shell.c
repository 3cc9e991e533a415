/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "stat_shell.h"

#include <ctype.h>
#include <string.h>

static const char unknown[] = "COMMAND";

static bool append(char *text, size_t size, const char *more)
{
	size_t used = strlen(text), n = strlen(more);

	if (used + n >= size)
		return false;
	memcpy(text + used, more, n + 1);
	return true;
}

bool stat_shell_is_plain(const char *word)
{
	for (const char *at = word; *at; at++)
		if (!isalnum((unsigned char)*at) && !strchr("_@%+=:,./-", *at))
			return false;
	return *word;
}

/* Appends a word, quoted if needed. Returns false if it is too long, or has characters that cannot be shown. */
static bool append_word(char *text, size_t size, const char *word)
{
	char one[2] = "";
	bool fits;

	if (stat_shell_is_plain(word))
		return append(text, size, word);
	fits = append(text, size, "'");
	for (const char *at = word; *at && fits; at++) {
		one[0] = *at;
		fits = (unsigned char)*at >= ' ' && (unsigned char)*at < 127 &&
		       append(text, size, *at == '\'' ? "'\\''" : one);
	}
	return fits && append(text, size, "'");
}

void stat_shell_command(char *text, size_t size, const char *words, size_t length)
{
	bool fits = length && !words[length - 1];

	text[0] = '\0';
	for (size_t at = 0; at < length && fits; at += strlen(words + at) + 1)
		fits = (!at || append(text, size, " ")) && append_word(text, size, words + at);
	if (!fits)
		memcpy(text, unknown, sizeof(unknown));
}
