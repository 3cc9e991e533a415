/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* What is drawn: all processes, one of them, or the keys; and a line of words at the bottom. */

#include "top_detail.h"
#include "top_model.h"
#include "top_screen.h"

struct top_view {
	pid_t selected;	   /* 0: the first */
	size_t first;	   /* row that is shown */
	size_t device;	   /* of the plot: its place in the list */
	bool is_paused, wants_help;
	double interval_s;
	struct top_detail *detail; /* NULL: all processes */
	const char *prompt;	   /* instead of the keys; NULL: those */
	char message[256];	   /* likewise, until the next key */
};

void top_view_draw(const struct top_screen *screen, struct top_view *view, struct top_model *model);

/* Where the selected row is among those that are shown; 0 if it is not. */
size_t top_view_at(const struct top_view *view, const struct top_model *model);
