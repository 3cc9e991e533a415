/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

#include "tools/ask/stat_options.h"
#include "tools/ask/stat_survey.h"

/* gpupool-stat map: prints an answer as rows of cells, and the blocks that keep segments in use. */
void stat_map_show(const struct stat_process *process, const struct stat_options *options);
