/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * GPUPOOL_REPORT=exit reports at the end of the program how much memory it used, and what it still holds;
 * GPUPOOL_REPORT=summary prints the summary that gpupool-run prints. All figures come from gpupool's own tables; no
 * CUDA call is made at exit.
 */

/*
 * Registers the report. To be called when the process begins to allocate; later calls do nothing. setting: the value of
 * GPUPOOL_REPORT in struct gp_config, which is not copied.
 */
void gp_exit_report_start(const char *setting);
