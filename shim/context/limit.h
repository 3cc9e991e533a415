/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Limits that change while the program runs. A lower limit takes no memory away that the program uses. While the total
 * is above the limit, cached memory goes back to the driver, at once and whenever more is freed, and allocations fail.
 */

#include "shim/base/json.h"
#include "common/size.h"

/* Sets the limits (gp_device_set_limits) and applies them to all pools. Returns the bytes that went back. */
uint64_t gp_limit_set(const struct gp_limit_list *list);

/* The same for pinned memory. */
uint64_t gp_limit_set_pinned(const struct gp_limit *limit);

/* Answers the command "limit". */
int gp_limit_answer(int argc, char **argv, struct gp_json *out);
