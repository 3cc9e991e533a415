/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* Finds processes whose control socket has no file, because no directory was usable for it (common/ctl_abstract.h). */

#include "stat_survey.h"

/*
 * Adds such processes of this user, or for root of every user. Each user gets one entry in survey->dirs. Adds nothing
 * if GPUPOOL_RUNTIME_DIR names a usable directory: the user then wants only that directory to be searched.
 */
void stat_abstract_list(struct stat_survey *survey);

/* Returns true if the connection has shown that the name of an abstract socket claims a user who does not own it. */
bool stat_abstract_is_false(const struct stat_survey *survey, const struct stat_process *process);
