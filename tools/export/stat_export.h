/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* gpupool-stat export: serves metrics over HTTP until a signal ends it. */

#include "tools/ask/stat_command.h"

enum stat_exit stat_export_run(const struct stat_command *command, const struct stat_options *options);
