# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors
"""Holds memory in more functions than an answer has room for, each with a long name, in a file with a long name."""

import ctypes
import os

FACTS, GO, FUNCTIONS, LENGTH = 3, 4, 4000, 240
driver = ctypes.CDLL("libcuda.so.1")
context = ctypes.c_void_p()
address = ctypes.c_uint64()

driver.cuInit(0)
driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
driver.cuCtxSetCurrent(context)
for i in range(FUNCTIONS):
    exec(compile("def %s():\n    driver.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(512))\n\n\n%s()\n"
                 % (2 * (("f%d" % i).ljust(LENGTH, "_"),)), "/" + ("d%d" % i).ljust(LENGTH, "/"), "exec"))
os.write(FACTS, b"pause held\n")
os.read(GO, 1)
