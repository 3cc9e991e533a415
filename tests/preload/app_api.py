# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors
"""Calls the functions of the Python module. The test compares the output."""

import ctypes
import os
import sys

sys.path.insert(0, os.environ["MODULE"])
sys.dont_write_bytecode = True

import gpupool  # noqa: E402

MIB = 1 << 20
driver = ctypes.CDLL("libcuda.so.1")
context = ctypes.c_void_p()


def alloc(size):
    address = ctypes.c_uint64()
    return driver.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(size)), address


def free(address):
    assert driver.cuMemFree_v2(address) == 0


driver.cuInit(0)
driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
driver.cuCtxSetCurrent(context)
print("active", gpupool.is_active(), gpupool.version() is not None)
pool = gpupool.get_default_memory_pool()
pinned = gpupool.get_default_pinned_memory_pool()
print("empty", pool.used_bytes(), pool.total_bytes(), pool.n_free_blocks(), pool.get_limit(), pinned.n_free_blocks())
code, block = alloc(400)
print("one", code, pool.used_bytes(), pool.total_bytes(), pool.n_free_blocks())
free(block)
print("freed", pool.used_bytes(), pool.total_bytes(), pool.free_bytes(), pool.n_free_blocks())
pool.free_all_blocks()
print("given back", pool.total_bytes(), pool.n_free_blocks(), gpupool.reclaim())
try:
    pool.set_limit(fraction=0.5)
    print("half", pool.get_limit())
    pool.set_limit(size=100 * MIB)
    print("limit", pool.get_limit(), alloc(101 * MIB)[0])
    asked = []

    def more(device, size):
        asked.append((device, size))
        pool.set_limit(size=0)
        return len(asked) < 2

    gpupool.set_oom_hook(more)
    code, block = alloc(101 * MIB)
    print("hook", code, asked, pool.get_limit())
    gpupool.set_oom_hook(None)
    free(block)
except gpupool.NotActive as e:
    print("not active:", e)
with gpupool.defer_cleanup(), gpupool.no_caching():
    code, block = alloc(3 * MIB)
    free(block)
print("scopes", code, gpupool.free_now() >= 0, pool.total_bytes())
with gpupool.caching_region("loop"):
    code, inside = alloc(2 * MIB)
    free(inside)
code, outside = alloc(2 * MIB)
with gpupool.caching_region("loop"):
    code, again = alloc(2 * MIB)
    free(again)
free(outside)
print("region", inside.value != outside.value and inside.value == again.value, code == 0,
      gpupool.invalidate_region("loop"))
gpupool.free_now()
try:
    with gpupool.caching_region(""):
        print("no name")
except OSError as e:
    print("no name:", e.strerror)
try:
    gpupool.status(7)
    print("device 7")
except OSError as e:
    print("device 7:", e.strerror)
try:
    print("no region", gpupool.sleep(drop=["never"]))
except OSError as e:
    print("no region:", e.strerror)
try:
    gpupool.sleep(to="disk")
except ValueError as e:
    print("to:", e)
gpupool.memory_status()
