/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Runs a command as a child of this process, in the same process group and on the same terminal, and ends as it ends.
 * run_wait.c says which signals it passes on.
 */

#include <stdbool.h>
#include <sys/types.h>

#include "run_say.h"

struct run_command {
	pid_t pid;
	int error;  /* errno of execvp(), or 0: the command has started */
	int status; /* how the command ended, as waitpid() returns it */
};

/* Prints that a command cannot be started, and returns the exit status for that. */
enum run_status run_cannot_start(const char *command, int error);

/*
 * Starts the command and waits for its end. Keeps only stderr and kept_fd open while it waits, since a reader of a pipe
 * waits until every process has closed it. Returns false if no child could be made, after a message.
 */
bool run_wait(char **command, int kept_fd, struct run_command *ret_command);

/* Ends this process with the exit status of the child, or with the signal that ended it. */
void run_end_like(const struct run_command *child) __attribute__((noreturn));
