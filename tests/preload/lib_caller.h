/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

#include "tests/apps/cuda_min.h"

/* A library that allocates for itself. */
__attribute__((visibility("default"))) CUresult caller_alloc(CUdeviceptr *ptr, size_t bytes);
