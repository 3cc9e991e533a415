# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors

"""
A chain of CuPy operations with temporary arrays, with CuPy's own pools, or with "none" without them.
"""

import json
import sys
import time

import cupy

WARM_UP, STEPS, WINDOWS = 20, 300, 3


def set_pool(has_pool):
    if not has_pool:
        cupy.cuda.set_allocator(None)
        cupy.cuda.set_pinned_memory_allocator(None)


def chain():
    """One step of the chain."""
    a = cupy.arange(1 << 20, dtype=cupy.float32)

    def step():
        b = cupy.sin(a) * 2 + 1
        c = (b * b - a).reshape(1024, 1024)
        d = c @ c.T
        return d.sum()

    return step


def main():
    has_pool = sys.argv[1:] != ["none"]
    set_pool(has_pool)
    step = chain()
    for _ in range(WARM_UP):
        step()
    ms = []
    for _ in range(WINDOWS):
        cupy.cuda.Device().synchronize()
        start = time.perf_counter()
        for _ in range(STEPS):
            total = step()
        cupy.cuda.Device().synchronize()
        ms.append((time.perf_counter() - start) / STEPS * 1e3)
    result = {
        "ms": ms,
        "answer": repr(float(total)),
        "own_peak_bytes": cupy.get_default_memory_pool().total_bytes() if has_pool else None,
    }
    print(json.dumps(result), flush=True)
    sys.stdin.readline()  # the test may observe this process before it ends


if __name__ == "__main__":
    main()
