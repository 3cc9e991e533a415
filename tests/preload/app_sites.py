# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors
"""Memory that is held by Python functions: a method, a generator, a thread, a name that is not ASCII, and code without
a file. The test quotes the numbers of these lines."""

import ctypes
import os
import threading

FACTS, GO = 3, 4
driver = ctypes.CDLL("libcuda.so.1")
context = ctypes.c_void_p()


def alloc(size):
    address = ctypes.c_uint64()
    return driver.cuMemAlloc_v2(
        ctypes.byref(address),
        ctypes.c_size_t(size))


class Layer:
    def forward(self, size):
        return alloc(size)


def generate():
    for _ in range(3):
        yield Layer().forward(1 << 20)


def größe():
    sizes = [1 << 16]

    for size in sizes:
        alloc(size)


def work():
    driver.cuCtxSetCurrent(context)
    alloc(2 << 20)


driver.cuInit(0)
driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
driver.cuCtxSetCurrent(context)
list(generate())
größe()
thread = threading.Thread(target=work)
thread.start()
thread.join()
exec(compile("\n\n\nalloc(4 << 20)", "made up", "exec"))
os.write(FACTS, b"pause held\n")
os.read(GO, 1)
