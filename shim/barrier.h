/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

typedef void gp_barrier_fn(void);

/* What makes a full memory barrier in every running thread of the process; NULL where the kernel has no such thing. */
gp_barrier_fn *gp_barrier_find(void);
