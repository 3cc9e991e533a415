/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * GPUPOOL_REPORT=exit: when the program ends, what it had used and what it still holds. From tables alone: no CUDA call
 * is made at exit.
 */

/* Once, when the process begins to allocate. The setting, as in struct gp_config, is kept. */
void gp_exit_report_start(const char *setting);
