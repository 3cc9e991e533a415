/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* The options of gpupool-stat, by the numbers of their rows in options.def. */

#include <getopt.h>

#include "tools/ask/stat_options.h"

enum {
	STAT_GETOPT_FIRST = 256, /* the key of the first row in getopt_long(); letters are below */
	STAT_OPTION_NAME_MAX = 32,
};

/* The arguments of getopt_long(). */
struct stat_getopt {
	struct option longs[STAT_N_OPTIONS + 1];
	char letters[2 * STAT_N_OPTIONS + 2];
};
void stat_option_fill(struct stat_getopt *ret);

/* Returns the option for a key that getopt_long() has returned, or -1. */
int stat_option_of(int key);

/* Stores the value of an option; value: NULL for an option without one. Returns false after a message. */
bool stat_option_take(struct stat_options *options, int option, const char *value);

/* Returns the long name that a mistyped word such as "--limt=8GiB" was probably meant to be, or NULL. */
const char *stat_option_nearest(const char *word);

/* Writes "-q" or, for an option without a letter, "--check". */
void stat_option_name(char text[static STAT_OPTION_NAME_MAX], int option);

/* Prints the lines of --help for a set of STAT_TAKES_*. Shells complete words from them (completions/). */
void stat_option_print_help(uint64_t options);
