/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* Draws all processes, one of them, or the help, and a line of text at the bottom. */

#include "top_detail.h"
#include "top_model.h"
#include "top_screen.h"

struct top_view {
	pid_t selected; /* 0: the first */
	size_t first;   /* row that is shown */
	size_t device;  /* index of the device in the plot */
	bool is_paused, wants_help;
	double interval_s;
	struct top_detail *detail; /* NULL: all processes */
	const char *prompt;        /* shown instead of the keys, or NULL */
	char message[256];         /* shown instead of the keys until the next key is pressed */
};

void top_view_draw(const struct top_screen *screen, struct top_view *view, struct top_model *model);

/* Returns the index of the selected row among the rows that are shown, or 0 if it is not one of them. */
size_t top_view_at(const struct top_view *view, const struct top_model *model);
