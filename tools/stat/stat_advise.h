/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

#include "tools/ask/stat_command.h"

/* Advises on a recording, or on a process if options->file is a number. */
enum stat_exit stat_advise_run(const struct stat_command *command, const struct stat_options *options);
