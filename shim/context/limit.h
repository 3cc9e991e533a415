/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Limits that change while the program runs. A lower limit takes nothing from the program. While the program is above
 * it, cached memory goes back to the driver, at once and as more is freed, and allocations fail until the total is
 * below the limit.
 */

#include "shim/base/json.h"
#include "common/size.h"

/* Sets the limits (gp_device_set_limits) and applies them to all pools. Returns the bytes given back. */
uint64_t gp_limit_set(const struct gp_limit_list *list);

/* The same for pinned memory. */
uint64_t gp_limit_set_pinned(const struct gp_limit *limit);

/* Answers the command "limit". */
int gp_limit_answer(int argc, char **argv, struct gp_json *out);
