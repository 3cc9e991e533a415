/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Limits that change while the program runs. What it holds stays its own: with a limit below that, cached memory goes
 * back, at once and whenever more of it becomes free, and nothing more can be had until enough has.
 */

#include "json.h"
#include "size.h"

/* As gp_state_set_limits, and what follows from it. Bytes given back. */
uint64_t gp_limit_set(const struct gp_limit_list *list);

/* Of pinned memory. */
uint64_t gp_limit_set_pinned(const struct gp_limit *limit);

/* Request "limit". */
int gp_limit_answer(int argc, char **argv, struct gp_json *out);
