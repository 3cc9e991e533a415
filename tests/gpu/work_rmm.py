# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors

"""
The chain of work_cupy.py, with arrays from RMM's pool, which the program asks for, and with buffers of RMM that are
filled and read back.
"""

import json
import sys
import time

import cupy
import rmm
import work_cupy
from rmm.allocators.cupy import rmm_cupy_allocator

WARM_UP, STEPS, WINDOWS = 20, 300, 3
FIRST_POOL = 64 << 20


def buffers(i):
    """The sum of bytes that went through buffers of varying sizes."""
    total = 0
    for n in (1 << 10, (i % 7 + 1) << 16, (i % 3 + 1) << 20):
        host = bytes([(i + n) % 251]) * 256
        buffer = rmm.DeviceBuffer(size=n)
        buffer.copy_from_host(host)
        total += sum(buffer.tobytes()[:256]) if n == 1 << 10 else buffer.size
    return total


def main():
    rmm.reinitialize(pool_allocator=True, initial_pool_size=FIRST_POOL)
    cupy.cuda.set_allocator(rmm_cupy_allocator)
    step, sums = work_cupy.chain(), 0
    for i in range(WARM_UP):
        step()
        buffers(i)
    ms = []
    for _ in range(WINDOWS):
        cupy.cuda.Device().synchronize()
        start = time.perf_counter()
        for i in range(STEPS):
            total = step()
            sums += buffers(i)
        cupy.cuda.Device().synchronize()
        ms.append((time.perf_counter() - start) / STEPS * 1e3)
    answer = f"{float(total)!r} {sums}"
    resource = type(rmm.mr.get_current_device_resource()).__name__
    print(json.dumps({"ms": ms, "answer": answer, "own_peak_bytes": None, "own_pool": resource}), flush=True)
    sys.stdin.readline()  # the test may observe this process before it ends


if __name__ == "__main__":
    main()
