/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Scenarios as words: "busy free spin malloc other:release" is what a program does, step by step, around a kernel that
 * spins until something releases it.
 *
 *   word           by the main thread in the first place (steps_words.c says what each does)
 *   second:word    in the second place: a context of its own on the device, or another device
 *   other:word     by another thread
 *   other:word&    likewise, and it may still be inside when the main thread goes on
 *   alone          at the beginning: with no stream but the default one
 *
 * The outcome of the program without the library is the reference: where that finishes, this must finish.
 */

#include "place.h"

enum {
	STEPS_SMALL = 64 << 10,
	STEPS_LARGE = 4 << 20,
	STEPS_HUGE = 160 << 20, /* a few of them are too much to have waiting: then an allocation insists on one */
};

/* Plays the words from beginning to end with blocks of that size: "outcome: finishes, 0 wrong", or "hangs". */
void steps_play(size_t bytes, const char *words);

/* Every combination of what comes before the spinning kernel, what meanwhile, and who releases it: a line for each. */
void steps_sweep(size_t bytes);

/* The second place is on this device; the first's own, unless the program says something else: a context of its own. */
extern CUdevice steps_second_device;

/* A table of X(name, bytes of a block, words) as scenarios, in a process of their own each or together. */
#define STEPS_FUNCTION(name, bytes, words)                                                                             \
	static void name(void)                                                                                         \
	{                                                                                                              \
		steps_play(bytes, words);                                                                              \
	}
#define STEPS_APART(name, bytes, words)	   {#name, name, 0},
#define STEPS_TOGETHER(name, bytes, words) {#name, name, APP_TOGETHER},
