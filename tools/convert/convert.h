/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* gpupool-stat convert: writes a recording, or the memory that a process holds, in the formats of other tools. */

#include <stdio.h>

#include "tools/ask/stat_command.h"
#include "stat_source.h"

enum stat_exit convert_command(const struct stat_command *command, const struct stat_options *options);

/*
 * Opens the file that -o names, or stdout. Returns NULL after a message if that fails, if the file is also the input,
 * or if stdout is a terminal and is_binary is set.
 */
FILE *convert_open(const struct stat_source *source, const char *path, bool is_binary);

/* Returns false after a message if the output would overwrite this input. */
bool convert_check_output(const char *input, const char *output);

/*
 * Closes the output. Returns STAT_OK if everything was written, after a message with the size unless it went to stdout.
 * Otherwise an existing file keeps its old contents, and a new file is removed.
 */
enum stat_exit convert_close(FILE *out, const char *path, enum stat_exit result);
