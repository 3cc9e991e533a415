/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* Where sockets may be. Directories that are not safe are left out, as the server leaves them. */

#include "stat_survey.h"

/* Those that a program started from this environment would use. */
void stat_places_own(struct stat_survey *survey);

/* The usual ones of every user, for root; unless GPUPOOL_RUNTIME_DIR names one. */
void stat_places_all_users(struct stat_survey *survey);

/* Those by the environment of a process, and of its container. */
void stat_places_of_process(struct stat_survey *survey, pid_t pid);

/* Adds the processes whose sockets are in a directory. */
void stat_places_list(struct stat_survey *survey, size_t dir);

/* For messages: the directories of stat_places_own(), usable or not. */
void stat_places_describe(char *text, size_t size);
