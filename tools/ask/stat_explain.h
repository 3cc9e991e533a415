/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* Explains why a process does not answer, from what the system shows of it, and what the user can do. */

#include "tools/text/stat_text.h"
#include "stat_survey.h"

/* Sets exit, error and next of a process that could not be asked. error is as in ctl_client.h. */
void stat_explain_error(struct stat_process *process, int error, const struct stat_question *question);

/* Returns true if the process is stopped, by a signal or a debugger. */
bool stat_explain_is_stopped(const struct stat_process *process);

/* The same for a process whose answer is left out, because the answers of its user have used up their share. */
void stat_explain_share(struct stat_process *process);

/* The same for a process that the user named, and that the survey had no time to ask or found no socket of. */
void stat_explain_missing(struct stat_process *process, pid_t pid, const struct stat_survey *survey);

/* Writes the name of a user, such as "ana", or the number if there is no name. */
void stat_explain_user(char text[static STAT_TEXT_MAX], uid_t uid);

/* Writes the command line of a process, from /proc, or "" if it is not readable. The text is not clean. */
void stat_explain_command(char *command, size_t size, pid_t pid);
