/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Stacks in answers, made readable: "Grid::grow (grid.cpp:212) < main (main.cpp:7)". An answer may bring the names
 * along that somebody found before ("symbols"); they are used where the files are not to be had.
 */

#include <jansson.h>
#include <sys/types.h>

struct stat_stacks;

/* For an answer with "objects". pid, uid: of the process that gave it; 0 and the caller's if it comes from a file. */
struct stat_stacks *stat_stacks_new(const json_t *reply, pid_t pid, uid_t uid);

/* Says on stderr if names are missing that were asked for, and why. */
void stat_stacks_free(struct stat_stacks *stacks);

/* The same without a word, for a terminal that shows a screen. */
void stat_stacks_free_quietly(struct stat_stacks *stacks);

/* The stack in one line, to be freed; "-" if there is none. Long names are shortened (stat_name.h). Clean. */
char *stat_stacks_text(struct stat_stacks *stacks, const json_t *frames);

/* The same for programs to read: with all of each name. */
char *stat_stacks_full_text(struct stat_stacks *stacks, const json_t *frames);

/* The file of its first frame, or "-". Not clean. */
const char *stat_stacks_library(struct stat_stacks *stacks, const json_t *frames);

/* Puts the names of all frames into the answer, as "symbols". */
void stat_stacks_complete(struct stat_stacks *stacks, json_t *reply);
