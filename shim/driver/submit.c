/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "submit.h"

struct gp_submissions gp_submitted = GP_SUBMISSION_INIT;
_Atomic unsigned gp_submit_reasons = GP_SUBMIT_SERIAL;
_Thread_local struct gp_submission_lane *gp_submit_lane __attribute__((tls_model("initial-exec")));
