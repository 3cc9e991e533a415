/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* Finds the cause of an out-of-memory error. */

#include "oom.h"

/* Sets the cause, and the held, usable and missing bytes. All other numbers must be set. */
void gp_oom_explain(struct gp_oom *oom);

/* Returns true if the program itself holds nearly all memory that it may use. */
bool gp_oom_is_full(const struct gp_oom *oom);

/* Returns the device memory in use that is not charged to this process. */
uint64_t gp_oom_other_processes_bytes(const struct gp_oom *oom);
