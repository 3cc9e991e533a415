/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* Answers of the control socket about GPUPOOL_DEBUG. */

#include "shim/ctl/ctl_request.h"

/* Writes the member "debug" of the answer to `status`: null while GPUPOOL_DEBUG is off. */
void gp_debug_write_status(struct gp_json *out);

/* Answers the command "debug [check]". */
int gp_debug_answer(int argc, char **argv, struct gp_json *out);
