/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* The kinds whose blocks are whole driver allocations. */

#include "kind.h"

extern const struct gp_kind_ops gp_kind_none, gp_kind_simple, gp_kind_binned;
