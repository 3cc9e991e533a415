/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

#include "pool/stats.h"
#include "shim/base/json.h"

/*
 * Writes retry rounds as an array. is_total: the rounds are the counters of a pool; writes all of them, with the number
 * of times that each ran. Otherwise they are those of one failure; writes only the rounds that ran.
 */
void gp_round_json(
	struct gp_json *out, const char *name, const struct gp_round_stats rounds[static GP_N_ROUNDS], bool is_total);
