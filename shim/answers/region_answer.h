/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* Answers of the control socket about regions. */

#include "shim/base/json.h"

/* Answers the request "region": lists the regions of the process, or invalidates one of them. */
/* Decodes %XX in place. Clients encode names in this way, since a word of a request cannot hold every character. */
void gp_region_decode(char *name);

int gp_region_answer(int argc, char **argv, struct gp_json *out);

/* Writes the member "by_region" of a device in "status": its regions, without those that do not fit. */
void gp_region_write_device(struct gp_json *out, int device);
