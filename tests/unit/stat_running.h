/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* Runs gpupool-stat and reads its output while it runs. */

#include <stdbool.h>
#include <stdio.h>

#include "stat_peer.h"

struct stat_running {
	pid_t pid;
	FILE *out;
	char line[8192]; /* the last line that was read */
};

/* Starts gpupool-stat with up to STAT_WORDS words, ended by NULL. */
void stat_start(struct stat_running *running, const char *const *words);
#define STAT_START(running, ...) stat_start(running, (const char *const[STAT_WORDS]){__VA_ARGS__})

/* Reads the next line, of stdout or stderr. Returns false if the program has ended. */
bool stat_next_line(struct stat_running *running);

/* Reads lines until one contains `part`. */
void stat_await(struct stat_running *running, const char *part);

/* Waits until the program ends; returns its wait status. */
int stat_finish(struct stat_running *running);
