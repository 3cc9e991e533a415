/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Scenarios as words: "busy free spin malloc other:release" lists the steps of a program. "spin" launches a kernel that
 * spins until a later step releases it.
 *
 *   word           the main thread takes the step in the first context (steps_words.c defines each word)
 *   second:word    the same in the second context, which is on the same device or on another
 *   other:word     another thread takes the step
 *   other:word&    another thread takes the step, and the main thread may continue before it is done
 *   alone          only as the first word: the program creates no streams, and uses the default one
 *
 * The reference is the outcome without the library: a scenario that finishes there must finish with the library.
 */

#include "work_context.h"

enum {
	STEPS_SMALL = 64 << 10,
	STEPS_LARGE = 4 << 20,
	STEPS_HUGE = 160 << 20, /* a few exceed the limit of pending memory: an allocation then waits for one */
};

/* Plays the words with blocks of that size, and prints "outcome: finishes, 0 wrong" or "outcome: hangs". */
void steps_play(size_t bytes, const char *words);

/* Plays each combination of steps before and during the spinning kernel, and of its release. Prints a line for each. */
void steps_sweep(size_t bytes);

/* The device of the second context. By default it is that of the first context. */
extern CUdevice steps_second_device;

/* For a table of X(name, bytes of a block, words): its functions, and its scenarios in separate processes or in one. */
#define STEPS_FUNCTION(name, bytes, words) \
	static void name(void)             \
	{                                  \
		steps_play(bytes, words);  \
	}
#define STEPS_APART(name, bytes, words)    {#name, name, 0},
#define STEPS_TOGETHER(name, bytes, words) {#name, name, APP_TOGETHER},
