/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* Programs of another architecture than the machine's are run by the command that a variable gives, if it is set. */

#include <stdlib.h>
#include <string.h>

#define EMULATOR           "GPUPOOL_TEST_EMULATOR"
#define EMULATOR_WORDS_MAX 8

/* Puts the words of the command, which stay, before those of a program to be executed. Returns how many there are. */
static inline size_t emulator_words(const char *argv[static EMULATOR_WORDS_MAX])
{
	const char *command = getenv(EMULATOR);
	char *words = command ? strdup(command) : NULL;
	size_t n = 0;

	if (!words)
		return 0;
	for (char *word = strtok(words, " "); word && n < EMULATOR_WORDS_MAX; word = strtok(NULL, " "))
		argv[n++] = word;
	return n;
}
