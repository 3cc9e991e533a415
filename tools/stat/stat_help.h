/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* The texts of --help. */

#include "tools/ask/stat_command.h"

void stat_help(void);
void stat_help_command(const struct stat_command *command);
