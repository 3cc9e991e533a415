/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* Shows the progress of long work on stderr, if that is a terminal. Shows nothing for short work. */

#include <stdint.h>

void stat_progress(uint64_t done, uint64_t all);

/* Clears the progress from the terminal. */
void stat_progress_end(void);
