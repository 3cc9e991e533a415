/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* Request "region": the regions of the process, or one of them that shall keep nothing. */

#include "json.h"

int gp_region_answer(int argc, char **argv, struct gp_json *out);

/* Of a device's members in "status": by_region, what regions have there. Those that do not fit are left out. */
void gp_region_write_device(struct gp_json *out, int device);
