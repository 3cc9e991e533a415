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


def queue_length():
    return gpupool.status().n_pending_blocks


def free_arrays(n, mib):
    """Frees n arrays, one after another. Returns the length of the queue after each free."""
    arrays = [cuda.Array(mib * MIB) for _ in range(n)]
    lengths = []
    while arrays:
        arrays.pop()
        lengths.append(queue_length())
    return lengths


cuda.start()
count = int(os.environ.get("GPUPOOL_PENDING_COUNT", 10))
print("queue lengths", *free_arrays(count + 2, 1))
gpupool.free_now()
print("queue lengths of large blocks", *free_arrays(6, 100))
gpupool.free_now()
free_arrays(1, 100)
print("before memory is full", queue_length(), "fits", cuda.fits(1000 * MIB))
gpupool.free_now()
with gpupool.defer_cleanup():
    with gpupool.defer_cleanup():
        free_arrays(15, 50)
        print("deferred", queue_length())
    print("still deferred", queue_length())
    print("memory is full, fits", cuda.fits(1000 * MIB), queue_length())
    free_arrays(15, 50)
print("at the end", queue_length())
gpupool.free_now()
print("held", gpupool.status().total_bytes)
