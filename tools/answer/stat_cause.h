/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* The cause of an out-of-memory error in words, those of the process's own message (common/oom_words.h). */

#include <jansson.h>

/* Returns the words for the last error in an answer to "oom", or "unknown". */
const char *stat_cause_text(const json_t *oom);
