/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Reads saved answers: files that the user names, and reports of out-of-memory errors that processes have saved in
 * socket directories (common/oom_name.h). Files in a socket directory may be hostile: only regular files of the
 * directory's owner are read, and links are not followed.
 */

#include <time.h>

#include "tools/ask/stat_survey.h"

/* The member of an answer that is true if the answer comes from a file. */
#define STAT_SAVED_KEY "is_saved"

struct stat_saved {
	struct stat_process process; /* with the answer, which the caller releases */
	time_t written;
	bool is_running; /* that process, not another with its pid */
};

/*
 * Finds the report of the process that runs with that pid or else the newest one of an ended process or, with 0, the
 * reports of all processes that have ended, the newest first. Returns their number. The caller frees the list.
 */
size_t stat_saved_find(struct stat_survey *survey, pid_t pid, struct stat_saved **ret_list);

/*
 * Finds the reports of all processes of a job, also of those that have not ended, the newest first. The same process
 * may also answer. Returns their number. The caller frees the list.
 */
size_t stat_saved_find_job(struct stat_survey *survey, const char *job, struct stat_saved **ret_list);

/* Returns the job in an answer to "oom", or "". */
const char *stat_saved_job(const json_t *reply);

/*
 * Read an answer to "leaks" or "oom" from a file that the user named, "-" being the standard input for "oom". The
 * caller releases it. Return NULL after a message, which uses the name.
 */
json_t *stat_saved_read_leaks(const char *path, const char *name);
json_t *stat_saved_read_oom(const char *name);
