/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* Whether a recording can be made, found out before the program starts. */

#include "run_say.h"
#include "shim/config.h"

/*
 * Says why not. The file that is looked for is the one that this process would make after it has become the program:
 * with its process id, and with the rank and job of its environment.
 */
enum run_status run_record_check(const struct gp_config *config);
