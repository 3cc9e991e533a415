/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

#include "tests/apps/cuda_min.h"

CUresult next_set(CUdeviceptr dst, unsigned value, size_t n, CUstream stream);
