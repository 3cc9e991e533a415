# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors

"""The protocol of a player in Python, as in player.c: each line of stdin requests a window of steps."""

import ctypes
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "gpu"))


MEMPOOL_HANDLE = 17  # CUpointer_attribute
RESERVED_MEM_HIGH = 6  # CUmemPool_attribute


def pool_peak(find):
    """The most bytes that a pool has reserved. find(driver, pool) asks the driver for the pool. None: no such answer."""
    pool, peak = ctypes.c_void_p(), ctypes.c_uint64()
    try:
        driver = ctypes.CDLL("libcuda.so.1")
        error = find(driver, pool) or driver.cuMemPoolGetAttribute(pool, RESERVED_MEM_HIGH, ctypes.byref(peak))
    except (OSError, AttributeError):
        return None
    return None if error else peak.value


def default_pool_peak():
    """That of the first device's default pool."""
    def find(driver, pool):
        device = ctypes.c_int()
        return (driver.cuDeviceGet(ctypes.byref(device), 0)
                or driver.cuDeviceGetDefaultMemPool(ctypes.byref(pool), device))
    return pool_peak(find)


def peak_of_pool_of(address):
    """That of the pool that the memory at the address is from."""
    def find(driver, pool):
        return driver.cuPointerGetAttribute(ctypes.byref(pool), MEMPOOL_HANDLE, ctypes.c_uint64(address))
    return pool_peak(find)


def print_line(text):
    print(text, flush=True)


def serve(step, wait, steps, more_results=lambda: {}):
    """step(i) submits work, wait() waits for all of it, more_results() returns further results as numbers."""
    print_line("ready")
    for _ in sys.stdin:
        wait()
        start, cpu = time.perf_counter_ns(), time.process_time_ns()
        for i in range(steps):
            step(i)
        wait()
        ns, cpu_ns = time.perf_counter_ns() - start, time.process_time_ns() - cpu
        more = "".join(f" {key}={value}" for key, value in more_results().items() if value is not None)
        print_line(f"pair ns={ns / steps:.1f} cpu_ns={cpu_ns / steps:.1f} pairs={steps}{more}")
