/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* gpupool-stat export: metrics for whoever asks by HTTP, until a signal ends it. */

#include "stat_command.h"

enum stat_exit stat_export_run(const struct stat_command *command, const struct stat_options *options);
