/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * A defect: freed memory is reused at once. Included before each source of the library (-include).
 */

#ifndef __ASSEMBLER__

#include "pool/fence.h"

#define gp_fence_completed(fence)  ((void)(fence), UINT64_MAX)
#define gp_fence_gpu_waited(fence) ((void)(fence), UINT64_MAX)

#endif
