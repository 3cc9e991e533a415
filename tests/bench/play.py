# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors

"""The protocol of a player in Python, as in player.c: each line of stdin requests a window of steps."""

import ctypes
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "gpu"))


RESERVED_MEM_HIGH = 6  # CUmemPool_attribute


def default_pool_peak():
    """The most bytes that the default pool of the first device has reserved; None if the driver does not say it."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
        get_device, get_pool, get = driver.cuDeviceGet, driver.cuDeviceGetDefaultMemPool, driver.cuMemPoolGetAttribute
    except (OSError, AttributeError):
        return None
    device, pool, peak = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
    error = (get_device(ctypes.byref(device), 0) or get_pool(ctypes.byref(pool), device)
             or get(pool, RESERVED_MEM_HIGH, ctypes.byref(peak)))
    return None if error else peak.value


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
