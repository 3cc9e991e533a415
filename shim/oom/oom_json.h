/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* The answer to the request "oom". */

#include "oom.h"

/* Reads the labels of the process (common/job.def) for its reports. */
void gp_oom_labels_start(void);

/* Writes the answer about this error. Returns 0 or -ENOMEM. No lock may be held. */
int gp_oom_write(struct gp_json *out, const struct gp_oom *oom);

/* Answers the request "oom". */
int gp_oom_answer(int argc, char **argv, struct gp_json *out);
