/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Reports of writes to memory that the program did not own. Each is logged once, and the last ones are kept for the
 * command `debug`.
 */

#include "debug_check.h"
#include "shim/trace/stack_json.h"

/* Logs and stores a finding. No lock may be held. */
void gp_finding_report(const struct gp_finding *finding);

/* Writes the members "n_reports" and "reports", which has the last reports. */
void gp_findings_write(struct gp_json *out, struct gp_stack_json *stacks);
