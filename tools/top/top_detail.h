/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* The details of one process: its blocks by size and by call site, its segments, its counters and regions. */

#include "top_model.h"
#include "top_screen.h"

struct top_detail;

struct top_detail *top_detail_new(pid_t pid);
void top_detail_free(struct top_detail *detail);
pid_t top_detail_pid(const struct top_detail *detail);

/* Asks the process, unless the model has what is shown. If the process does not answer, its last answer stays. */
void top_detail_ask(struct top_detail *detail, const struct top_model *model, const struct stat_options *options);

/* Handles a key. Returns false if the key has no meaning here; otherwise the caller must ask again. */
bool top_detail_key(struct top_detail *detail, int key);

/* Writes a line of the help: the keys for the pages, and the names of the pages. */
enum { TOP_DETAIL_HELP_MAX = 128 };
void top_detail_help(char text[static TOP_DETAIL_HELP_MAX]);

/* Draws the details on the lines from `from` up to, but not including, `to`. */
void top_detail_draw(const struct top_screen *screen, struct top_detail *detail, int from, int to);
