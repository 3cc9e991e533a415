/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

#include "tools/ask/stat_survey.h"

/*
 * Prints one table of all processes that have answered "status": a row for each device of each process and, below the
 * rows of a device, their sum and what is free of the device. Its columns fit in 80; only the command is longer.
 */
void stat_overview_show(const struct stat_survey *survey);
