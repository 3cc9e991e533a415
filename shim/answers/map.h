/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* Answers the request "map": every block of every pool, by address. */

#include "shim/ctl/ctl_request.h"

int gp_map_answer(int argc, char **argv, struct gp_json *out);
