/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* Why a process does not answer, found out by looking at it from outside, and what to do then. */

#include "stat_survey.h"
#include "stat_text.h"

/* Fills exit, error and next of a process that could not be asked: error as in ctl_client.h. */
void stat_explain_error(
	struct stat_process *process, int error, const struct stat_question *question);

/* The same for a process whose answer is left out, since its user has answered so much already. */
void stat_explain_share(struct stat_process *process);

/* The same for a process that was asked for but has no socket. */
void stat_explain_missing(struct stat_process *process, pid_t pid);

/* "ana", or the number where it has no name. */
void stat_explain_user(char text[static STAT_TEXT_MAX], uid_t uid);

/* The words a process was started with, from /proc: "" if they cannot be seen. Not clean. */
void stat_explain_command(char *command, size_t size, pid_t pid);
