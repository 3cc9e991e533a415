/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* Prints the results of a replay, as text and as "gpupool.replay/1". */

#include "replay_run.h"

/* Prints two or three lines about the file. */
void replay_show_contents(const struct replay_contents *contents);

void replay_show(const struct replay_contents *contents, const struct replay_result *results, size_t n);
void replay_show_json(const struct replay_contents *contents, const struct replay_result *results, size_t n);

/* Returns "auto", "ordered" or "completed". */
const char *replay_reuse_name(enum replay_reuse reuse);
