/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Searches the directories that may hold control sockets. Each function adds directories to a survey, and the processes
 * whose sockets are in them. It leaves out directories that are not safe, which processes do not use either, and those
 * that have neither sockets nor files of processes that have ended: reports (stat_saved.h) and counter pages.
 */

#include "stat_survey.h"

/*
 * True if GPUPOOL_RUNTIME_DIR names a directory that programs of the user can use. The user then wants only that
 * directory to be searched, besides those of processes that the command names.
 */
bool stat_dirs_is_named(void);

/* Adds the directories that a program started from this environment may use. */
void stat_dirs_of_caller(struct stat_survey *survey);

/* For root, adds the usual directories of every user, unless GPUPOOL_RUNTIME_DIR is set. */
void stat_dirs_of_all_users(struct stat_survey *survey);

/*
 * Adds those of some directories that exist. prefix: what stands before their paths, "" or the root directory of a
 * process. owner: the user whose directories are added; NULL: every user.
 */
void stat_dirs_add(struct stat_survey *survey, const struct gp_ctl_dirs *dirs, const char *prefix, const uid_t *owner);

/* Adds the directories of an earlier survey that are still there. */
void stat_dirs_again(struct stat_survey *survey, const struct stat_survey *old);

/* Adds a process to the survey. */
void stat_dirs_add_process(struct stat_survey *survey, const struct stat_process *process);

/* Returns how many processes of this user may be added from one directory. */
size_t stat_dirs_room(const struct stat_survey *survey, uid_t uid);

/* Opens a directory of the survey again. Returns 0 or -errno; -ESTALE if its path now leads to another directory. */
int stat_dir_open(struct stat_dir *dir);

/* Writes a list of the directories of stat_dirs_of_caller(), usable or not, for a message. */
void stat_dirs_describe(char *text, size_t size);
