/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* Runs a command once, or repeatedly with --watch. */

#include "stat_command.h"

/*
 * Asks the processes and calls show() with the survey: once or, with --watch, at each interval until --count is reached
 * or, if the user named processes, none of them is left. Returns the exit code that show() returned last.
 */
enum stat_exit stat_watch(const struct stat_question *question, const struct stat_options *options,
	enum stat_exit (*show)(void *arg, struct stat_survey *survey), void *arg);
