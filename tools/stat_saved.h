/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Reports of out-of-memory errors that processes have saved (shim/oom_name.h). What is read in a socket directory may
 * be hostile: only regular files of the directory's owner are, and no link is followed.
 */

#include <time.h>

#include "stat_survey.h"

/* In answers: whether they come from a file. */
#define STAT_SAVED_KEY "is_saved"

struct stat_saved {
	struct stat_process process; /* with the answer, which the caller drops */
	time_t written;
	bool is_running; /* that process, not another with its number */
};

/*
 * The newest report of a process with that number, or with 0 the newest of each that has ended; the newest first. The
 * caller frees the list.
 */
size_t stat_saved_find(struct stat_survey *survey, pid_t pid, struct stat_saved **ret_list);

/* The answer in a file of the user's choice, or NULL after a message. */
json_t *stat_saved_read(const char *path);
