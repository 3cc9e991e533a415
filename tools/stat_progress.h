/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* How far long work has come, on stderr if that is a terminal; nothing for work that is soon done. */

#include <stdint.h>

void stat_progress(uint64_t done, uint64_t all);

/* Clears what it has shown. */
void stat_progress_end(void);
