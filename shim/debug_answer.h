/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* What the control socket tells of GPUPOOL_DEBUG. */

#include "ctl_request.h"

/* "debug" of `status`; null while it is off. */
void gp_debug_write_status(struct gp_json *out);

int gp_debug_answer(int argc, char **argv, struct gp_json *out);
