/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* Checks, before the program starts, that a recording can be made. */

#include "common/config.h"
#include "run_say.h"

/*
 * Returns RUN_OK, or another status after a message. The name of the file is the one that the program will use: this
 * process becomes the program, so process id, rank and job are the same.
 */
enum run_status run_record_check(const struct gp_config *config);
