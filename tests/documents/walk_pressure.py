# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors
"""A program need not reclaim explicitly: cached memory that fills the device is released for the next allocation."""

import cuda
import gpupool

MIB = 1 << 20

cuda.start()
arrays = [cuda.Array(24 * MIB) for _ in range(10)]
print("used", gpupool.status().used_bytes // MIB)
arrays = None
pool = gpupool.get_default_memory_pool()
print("used", pool.used_bytes(), "cached", pool.free_bytes() >= 240 * MIB)
print("fits", cuda.fits(250 * MIB), "out of memory", gpupool.status().ooms)
