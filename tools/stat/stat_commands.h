/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

#include "tools/ask/stat_command.h"

/* All commands of gpupool-stat. The list ends with a row without a name; the first is the default. */
extern const struct stat_command stat_commands[];
