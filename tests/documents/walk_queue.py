# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors
"""
The queue of blocks to deallocate, and the calls that flush it. Run this with a limit of 1 GiB: the largest size of the
queue in bytes is a share of the limit.
"""

import os

import cuda
import gpupool

MIB = 1 << 20


def pending():
    return gpupool.status().n_pending_blocks


def drop(n, mib):
    """Frees n arrays, one after another. Returns the length of the queue after each."""
    arrays = [cuda.Array(mib * MIB) for _ in range(n)]
    waiting = []
    while arrays:
        arrays.pop()
        waiting.append(pending())
    return waiting


cuda.start()
count = int(os.environ.get("GPUPOOL_PENDING_COUNT", 10))
print("dropped", *drop(count + 2, 1))
gpupool.free_now()
print("in bytes", *drop(6, 100))
gpupool.free_now()
drop(1, 100)
print("before it runs out", pending(), "then", cuda.fits(1000 * MIB))
gpupool.free_now()
with gpupool.defer_cleanup():
    with gpupool.defer_cleanup():
        drop(15, 50)
        print("deferred", pending())
    print("still deferred", pending())
    print("runs out", cuda.fits(1000 * MIB), pending())
    drop(15, 50)
print("at the end", pending())
gpupool.free_now()
print("held", gpupool.status().total_bytes)
