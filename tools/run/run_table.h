/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* The table of gpupool-run --compare. */

#include "run_compare.h"

/* Prints a column for each run. why_no_peak: the reason if no run has a peak. Returns false if stdout refuses it. */
bool run_table_print(const struct run_result *results, unsigned n, const char *why_no_peak);

/* Writes how a run ended: "exit status 3" or "signal 9 (Killed)". Returns the text. */
enum { RUN_END_TEXT_MAX = 64 };
const char *run_end_text(char text[static RUN_END_TEXT_MAX], int status);
