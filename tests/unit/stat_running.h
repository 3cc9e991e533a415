/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* gpupool-stat whose output is read while it runs. */

#include <stdbool.h>
#include <stdio.h>

#include "stat_peer.h"

struct stat_running {
	pid_t pid;
	FILE *out;
	char line[8192]; /* the last that was read */
};

/* With up to STAT_WORDS words up to a NULL. */
void stat_start(struct stat_running *running, const char *const *words);
#define STAT_START(running, ...) stat_start(running, (const char *const[STAT_WORDS]){__VA_ARGS__})

/* False: it has ended. What it says on stderr is read, too. */
bool stat_next_line(struct stat_running *running);

/* Reads on to a line with that in it. */
void stat_await(struct stat_running *running, const char *part);

/* Waits for its end; returns its status. */
int stat_finish(struct stat_running *running);
