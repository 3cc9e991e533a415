# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors
"""Limits from the environment and from the program, one for each device. Memory of the context does not count."""

import os

import cuda
import gpupool

MIB = 1 << 20
GIB = 1 << 30


def describe(limit):
    """The limit; "half" for a limit of 50%, because the memory of devices differs."""
    total = gpupool.status().device_total_bytes
    return "half" if os.environ.get("GPUPOOL_LIMIT") == "50%" and limit == total // 2 else limit


cuda.start()
mempool = gpupool.get_default_memory_pool()
print("limit", describe(mempool.get_limit()))
print("reported total", describe(cuda.memory_info()[1]))
for device in range(min(cuda.device_count(), 2)):
    gpupool.get_default_memory_pool(device).set_limit(size=(device + 1) * GIB)
    print("device", device, gpupool.get_default_memory_pool(device).get_limit())
gpupool.free_now()
print("the whole limit fits", cuda.fits(GIB), "a byte more", cuda.fits(GIB + 1))
mempool.set_limit(fraction=0.25)
print("limit is a quarter", mempool.get_limit() == gpupool.status().device_total_bytes // 4)
mempool.set_limit(size=64 * MIB)
print("64 and 65 MiB fit into 64 MiB", cuda.fits(64 * MIB), cuda.fits(65 * MIB))
mempool.set_limit(size=0)
print("no limit", mempool.get_limit(), cuda.fits(65 * MIB))
