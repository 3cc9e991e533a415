/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

#include "tools/ask/stat_survey.h"

/*
 * Prints the table of "gpupool-stat list", one line for each process, from answers to "status". Prints nothing if no
 * process has answered.
 */
void stat_list_show(const struct stat_survey *survey);
