/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* Size classes. The steps between them grow with the size, so that rounding wastes a bounded share. Pure functions. */

#include "base.h"

/* Up to this size a class is at most 1/4 larger than the one before, above it at most 1/8. */
#define GP_CLASS_FINE_ABOVE GP_MIB

/* Far more than any device has. */
#define GP_CLASS_MAX (UINT64_C(1) << 53)

enum { GP_N_CLASSES = 400 };

/* Returns the class with the smallest size >= bytes, for bytes <= GP_CLASS_MAX. */
unsigned gp_sizeclass_index(uint64_t bytes);

/* Returns the size of a class: a multiple of GP_ALIGN. */
uint64_t gp_sizeclass_bytes(unsigned index);
