/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Makes the stacks in answers readable: "Grid::grow (grid.cpp:212) < main (main.cpp:7)". An answer may contain names
 * that were found earlier ("symbols"); they are used if the files are not available.
 */

#include "tools/ask/stat_survey.h"

struct stat_stacks;

/* For an answer with "objects". pid, uid: of the process that answered; 0 and the caller's for an answer in a file. */
struct stat_stacks *stat_stacks_new(const json_t *reply, pid_t pid, uid_t uid);

/* Frees the stacks. Reports on stderr if names could not be found, and why. */
void stat_stacks_free(struct stat_stacks *stacks);

/* The same without a message, for a full-screen display. */
void stat_stacks_free_quietly(struct stat_stacks *stacks);

/* Returns a stack in one line, or "-"; the caller frees it. Long names are shortened (stat_name.h). It is clean. */
char *stat_stacks_text(struct stat_stacks *stacks, const json_t *frames);

/* The same with full names, for programs. */
char *stat_stacks_full_text(struct stat_stacks *stacks, const json_t *frames);

/* Prints "  title: stack", unless the stack is empty. */
void stat_stacks_print(struct stat_stacks *stacks, const char *title, const json_t *frames);

/* Returns the file of the first frame, or "-". The text is not clean. */
const char *stat_stacks_library(struct stat_stacks *stacks, const json_t *frames);

/* Puts the names of all frames of an answer into it, as "symbols". pid and uid of the process: as above. */
void stat_stacks_complete(const struct stat_process *process);
