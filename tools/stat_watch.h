/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* Commands that --watch repeats. */

#include "stat_command.h"

/*
 * Asks and shows: once, or at the times that --watch sets until --count is reached or, if processes were named, none of
 * them is left. Each time show() is given the survey and returns what is to be the exit code; the last one counts.
 */
enum stat_exit stat_watch(const struct stat_question *question, const struct stat_options *options,
	enum stat_exit (*show)(void *arg, struct stat_survey *survey), void *arg);
