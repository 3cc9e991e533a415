/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * The figures of this process for a summary (common/summary.h): for GPUPOOL_REPORT=summary at exit, and for
 * gpupool-run, which reads them from its page.
 */

#include "common/summary.h"

/*
 * Maps the page of gpupool-run, if there is one, and registers callbacks if there will be a summary. To be called when
 * the modules are set up. It takes some system calls, prints nothing, and leaves no descriptor open.
 */
void gp_own_summary_set_up(void);

/*
 * To be called when the process begins to allocate. If there is a page, starts the thread that keeps it current, and
 * writes the last figures at exit.
 */
void gp_own_summary_start(void);

/* Counts an out-of-memory error that reaches the program. is_vmm_better: as in struct gp_oom. */
void gp_own_summary_note_oom(bool is_vmm_better);

/* Gathers the figures. No lock may be held. */
void gp_own_summary_take(struct gp_summary *ret);
