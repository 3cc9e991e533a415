/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* The summary at exit: makes the page that the library fills (common/summary.h), and prints it. */

#include <stdbool.h>
#include <sys/types.h>

#include "common/summary.h"

struct run_summary {
	struct gp_summary_page *page;
	int fd;
};

/* True if another gpupool-run, from which this one was started, will print a summary. */
bool run_summary_is_nested(void);

/*
 * Creates the page and puts its name into the environment. Without a page the command runs as well: returns false after
 * a warning.
 */
bool run_summary_init(struct run_summary *summary);

void run_summary_deinit(struct run_summary *summary);

/* Adds up the figures of all processes. */
void run_summary_total(const struct run_summary *summary, struct gp_summary *ret);

/* Prints the summary of an ended command on stderr. */
void run_summary_print(const struct run_summary *summary, const char *command, pid_t pid);
