/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* Parse the values of options. They print a message before they return false. */

#include "tools/ask/stat_options.h"

bool stat_parse_timeout(struct stat_options *options, const char *text);
bool stat_parse_max(struct stat_options *options, const char *text);
bool stat_parse_device(struct stat_options *options, const char *text);
bool stat_parse_by(struct stat_options *options, const char *text);
bool stat_parse_min(struct stat_options *options, const char *text);
bool stat_parse_older(struct stat_options *options, const char *text);
bool stat_parse_watch(struct stat_options *options, const char *text);
bool stat_parse_count(struct stat_options *options, const char *text);
