/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Reads the counter pages in the directories of a survey (common/counter_page.h), without asking their processes. Pages
 * may be hostile: only regular files of the directory's owner are read, links are not followed, and the number of pages
 * of a foreign user is bounded.
 */

#include "common/counter_page.h"
#include "tools/ask/stat_survey.h"

struct stat_page {
	struct stat_dir *dir; /* open */
	const char *name;
	pid_t pid; /* as in the name: of the pid namespace of the process */
	uint64_t start_ticks;
	struct stat_process *process; /* the process of the survey that has this page; NULL: none */
	struct gp_page_copy copy;
};

/* Calls fn for each page. fn may remove the file. */
typedef void (*stat_page_fn)(void *arg, struct stat_page *page);
void stat_pages_each(struct stat_survey *survey, stat_page_fn fn, void *arg);

/*
 * Returns true if the process of a page has certainly ended: no process with its number and start time is visible here,
 * and no process listens at its socket, as one in another container would.
 */
bool stat_page_has_ended(const struct stat_page *page);

/* Gives processes without an answer the figures of their pages, in the form of an answer, as the answer before. */
void stat_pages_complete(struct stat_survey *survey);
