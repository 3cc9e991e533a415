/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* The kind vmm: memory is mapped into arenas of addresses as needed. */

#include "kind.h"

extern const struct gp_kind_ops gp_kind_vmm;
