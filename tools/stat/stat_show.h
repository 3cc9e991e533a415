/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

#include "tools/ask/stat_reply.h"

/* Prints the table of an answer's "callers": how much each library holds. */
void stat_show_callers(const json_t *callers);
