# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors
"""
Injects an error into the deallocation of the third of eleven arrays. Run this on the simulated GPU, which can inject
errors and counts calls.
"""

import ctypes

import cuda
import gpupool

MIB = 1 << 20


def calls(function):
    cuda.driver.simgpu_calls.restype = ctypes.c_uint64
    return cuda.driver.simgpu_calls(function)


cuda.start()
arrays = [cuda.Array(MIB) for _ in range(11)]
while arrays:
    arrays.pop()
print("queued", gpupool.status().n_pending_blocks, "deallocations", calls(b"cuMemFree_v2"))
try:
    gpupool.free_now()
except OSError as error:
    print(error.strerror)
print("held", gpupool.status().total_bytes)
try:
    print("fits", cuda.fits(MIB), gpupool.status().misses)
except cuda.CudaError as error:
    print(error)
