/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * The grace periods of kept.h: whether the GPU may still use memory that the program has unmapped. All functions are
 * for a busy triple.
 */

#include "kept_table.h"

/* Begins the period at an unmap. Returns false if the process may do work that gpupool cannot ask for. */
bool gp_kept_grace_begin(struct gp_kept *kept);

/* Asks whether the period is over. It is lost if a context has ended or has a sticky error, and cannot be asked. */
enum gp_kept_grace { GP_KEPT_GRACE_OVER, GP_KEPT_GRACE_RUNS, GP_KEPT_GRACE_LOST };
enum gp_kept_grace gp_kept_grace_of(const struct gp_kept *kept);

/* Forgets the period. To be called before the triple is freed. */
void gp_kept_grace_forget(struct gp_kept *kept);
