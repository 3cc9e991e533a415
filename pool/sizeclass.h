/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* Size classes: steps that grow with the size, so that rounding wastes a bounded share. Pure functions. */

#include "base.h"

/* Up to here a class is at most 1/4 larger than the one before, above at most 1/8. */
#define GP_CLASS_FINE_ABOVE GP_MIB

enum { GP_N_CLASSES = 400 };

/* The class of the smallest size >= bytes, for bytes <= 2^53. */
unsigned gp_sizeclass_index(uint64_t bytes);

/* The size of a class: a multiple of GP_ALIGN. */
uint64_t gp_sizeclass_bytes(unsigned index);
