/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Finds socket directories through the processes that use them: each process is looked at through its own environment,
 * root directory, mounts and user ids. So a job with a TMPDIR or a /tmp of its own is found, and a container too.
 */

#include "stat_survey.h"

/*
 * Adds the directories of all processes of this user, or for root of all users, that belong to the user of the process.
 * Adds nothing if GPUPOOL_RUNTIME_DIR is set. The work for each user is bounded.
 */
void stat_dirs_of_processes(struct stat_survey *survey);

/*
 * Adds the directories that the environment of a process names. If the process is in a container, a name leads to other
 * directories there; both are added.
 */
void stat_dirs_of_process(struct stat_survey *survey, pid_t pid);
