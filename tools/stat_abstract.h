/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* Processes whose control socket has no file, since no directory was usable for it (shim/ctl_abstract.h). */

#include "stat_survey.h"

/*
 * Adds those of this user, or for root of every user; unless GPUPOOL_RUNTIME_DIR names a usable directory, where the
 * user then means to look. Each user has one entry among the directories.
 */
void stat_abstract_list(struct stat_survey *survey);

/* Whether a process that was connected to has such a socket under a name that is another user's. */
bool stat_abstract_is_false(const struct stat_survey *survey, const struct stat_process *process);
