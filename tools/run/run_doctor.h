/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* --doctor: checks all that a program under gpupool needs, and says what is good and what to do. */

#include "common/config.h"
#include "run_say.h"

/*
 * Prints the lines on stdout. library: as given with --library, or NULL. command: CMD, or NULL. Returns RUN_OK if all
 * is good, or RUN_TODO.
 */
enum run_status run_doctor(const char *library, const char *command);
