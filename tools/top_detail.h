/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* One process looked at closely: what it holds by size and by call site, its segments, its counters and regions. */

#include "top_model.h"
#include "top_screen.h"

struct top_detail;

struct top_detail *top_detail_new(pid_t pid);
void top_detail_free(struct top_detail *detail);
pid_t top_detail_pid(const struct top_detail *detail);

/* Asks it, unless what is shown is in the model already. A process that does not answer keeps what it has said. */
void top_detail_ask(struct top_detail *detail, const struct top_model *model, const struct stat_options *options);

/* True if it was a key for it; then there may be other things to be asked for. */
bool top_detail_key(struct top_detail *detail, int key);

/* Its keys for the pages, and their names, as a line of the help. */
enum { TOP_DETAIL_HELP_MAX = 128 };
void top_detail_help(char text[static TOP_DETAIL_HELP_MAX]);

/* From a line up to another. */
void top_detail_draw(const struct top_screen *screen, struct top_detail *detail, int from, int to);
