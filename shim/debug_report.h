/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* Writes to memory that was not the program's to write to: said once each, and kept for who asks. */

#include "debug_check.h"
#include "stack_json.h"

/* No lock may be held. */
void gp_finding_report(const struct gp_finding *finding);

/* "n_reports" and "reports": the last ones. */
void gp_findings_write(struct gp_json *out, struct gp_stack_json *stacks);

uint64_t gp_findings_count(void);
