/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* The kind split: large segments, split and merged. */

#include "kind.h"

extern const struct gp_kind_ops gp_kind_split;
