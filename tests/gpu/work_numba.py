# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors

"""
Allocates and frees all kinds of Numba's arrays on two streams: device, pinned, mapped and managed. Numba delays frees
in its own queue, unless NUMBA_CUDA_MAX_PENDING_DEALLOCS_COUNT=0 disables that.
"""

import json
import sys
import time

import numpy

# NumPy 2.5 removed this name, which older versions of Numba's CUDA functions still use.
if not hasattr(numpy, "row_stack"):
    numpy.row_stack = numpy.vstack

from numba import cuda

WARM_UP, STEPS, WINDOWS = 20, 200, 3
THREADS = 256


@cuda.jit
def scale(out, x, factor):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = factor * x[i] + i % 7


def launch(stream, out, x, factor):
    scale[(out.size + THREADS - 1) // THREADS, THREADS, stream](out, x, factor)


def step(i, streams):
    """Small whole numbers, so that each sum is exact."""
    n, stream = 50_000 + (i * 7919) % 50_000, streams[i % len(streams)]
    host = cuda.pinned_array(n, dtype=numpy.float64)
    host[:] = i % 5
    x = cuda.to_device(host, stream=stream)
    y = cuda.device_array(n, dtype=numpy.float64, stream=stream)
    launch(stream, y, x, 2)
    mapped = cuda.mapped_array(1000, dtype=numpy.float64)
    launch(stream, mapped, y, 3)
    managed = cuda.managed_array(1000, dtype=numpy.float64)
    launch(stream, managed, y, 4)
    y.copy_to_host(host, stream=stream)
    stream.synchronize()
    return float(host.sum() + mapped.sum() + managed.sum())


def main():
    streams = [cuda.stream(), cuda.stream()]
    for i in range(WARM_UP):
        step(i, streams)
    ms, total = [], 0.0
    for _ in range(WINDOWS):
        start = time.perf_counter()
        for i in range(STEPS):
            total += step(i, streams)
        with cuda.defer_cleanup():
            total += step(STEPS, streams)
        ms.append((time.perf_counter() - start) / (STEPS + 1) * 1e3)
    print(json.dumps({"ms": ms, "answer": repr(total), "own_peak_bytes": None}), flush=True)
    sys.stdin.readline()  # the test may observe this process before it ends


if __name__ == "__main__":
    main()
