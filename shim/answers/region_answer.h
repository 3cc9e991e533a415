/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* Request "region": lists the regions of the process, or invalidates one of them. */

#include "shim/base/json.h"

int gp_region_answer(int argc, char **argv, struct gp_json *out);

/* Writes the member by_region of a device in "status": its regions. Regions that do not fit are left out. */
void gp_region_write_device(struct gp_json *out, int device);
