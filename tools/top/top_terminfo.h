/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

#include <stdbool.h>

/* Returns true if the type of the terminal is known, and the cursor can be moved to any position. */
bool top_terminfo_can_draw(void);
