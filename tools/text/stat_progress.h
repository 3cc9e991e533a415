/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Shows the progress of work that takes more than a second on stderr, if that is a terminal: a percentage, which stays
 * at 99 if the work is more than was expected.
 */

#include <stdint.h>

void stat_progress(uint64_t done, uint64_t all);

/* Clears the progress from the terminal. The next call of stat_progress() begins other work. */
void stat_progress_end(void);
