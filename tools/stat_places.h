/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Where sockets may be. Each function adds directories to a survey, and the processes whose sockets are in them.
 * Directories that are not safe are left out, as the server leaves them, and so are those without sockets and
 * reports of processes that have ended (stat_saved.h).
 */

#include "stat_survey.h"

/* Those that a program started from this environment would use. */
void stat_places_own(struct stat_survey *survey);

/* The usual ones of every user, for root; unless GPUPOOL_RUNTIME_DIR names one. */
void stat_places_all_users(struct stat_survey *survey);

/* Those by the environment of a process, and of its container. */
void stat_places_of_process(struct stat_survey *survey, pid_t pid);

/* Adds a process of a directory of the survey; there is room for this many more in a directory of this user. */
void stat_places_add(struct stat_survey *survey, const struct stat_process *process);
size_t stat_places_room(const struct stat_survey *survey, uid_t uid);

/* Opens a directory of the survey again. 0, or -errno: -ESTALE if it has become another. */
int stat_dir_open(struct stat_dir *dir);

/* For messages: the directories of stat_places_own(), usable or not. */
void stat_places_describe(char *text, size_t size);
