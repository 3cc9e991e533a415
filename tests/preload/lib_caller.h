/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

#include "tests/apps/cuda_min.h"

/* Allocates with this library as the caller of the driver. */
__attribute__((visibility("default"))) CUresult caller_alloc(CUdeviceptr *ptr, size_t bytes);
