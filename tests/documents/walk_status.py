# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors
"""The memory status of a pool: an array of 8 KiB is allocated and freed, and its cached memory is reclaimed."""

import cuda
import gpupool

cuda.start()
gpupool.memory_status()  # the initial state
a = cuda.Array(8 * 1024)
gpupool.memory_status()
a = None
cuda.synchronize()
gpupool.memory_status()  # 8 KiB are cached now
print(gpupool.reclaim())
gpupool.memory_status()
