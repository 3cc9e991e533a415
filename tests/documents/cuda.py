# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors
"""The calls of CUDA that the walks need. An array allocates its memory, and frees it with the last reference to it."""

import ctypes

driver = ctypes.CDLL("libcuda.so.1")
OUT_OF_MEMORY = 2


class CudaError(RuntimeError):
    def __init__(self, code):
        super().__init__(f"CUDA error {code}")
        self.code = code


def must(code):
    if code:
        raise CudaError(code)


def start():
    """Makes the first device's primary context current."""
    context = ctypes.c_void_p()
    must(driver.cuInit(0))
    must(driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
    must(driver.cuCtxSetCurrent(context))


def synchronize():
    must(driver.cuCtxSynchronize())


class Array:
    """An array of nbytes bytes on the device."""

    def __init__(self, nbytes):
        self.nbytes = nbytes
        self.address = ctypes.c_uint64()
        must(driver.cuMemAlloc_v2(ctypes.byref(self.address), ctypes.c_size_t(nbytes)))

    def __del__(self):
        if self.address:
            driver.cuMemFree_v2(self.address)


class PinnedArray:
    """An array of nbytes bytes of page-locked host memory."""

    def __init__(self, nbytes):
        self.nbytes = nbytes
        self.address = ctypes.c_void_p()
        must(driver.cuMemHostAlloc(ctypes.byref(self.address), ctypes.c_size_t(nbytes), 0))

    def __del__(self):
        if self.address:
            driver.cuMemFreeHost(self.address)


def array(data):
    """Copies the bytes to a new array on the device, through pinned memory."""
    staging = PinnedArray(len(data))
    ctypes.memmove(staging.address, data, len(data))
    result = Array(len(data))
    must(driver.cuMemcpyHtoD_v2(result.address, staging.address, ctypes.c_size_t(len(data))))
    return result


def device_count():
    count = ctypes.c_int()
    must(driver.cuDeviceGetCount(ctypes.byref(count)))
    return count.value


def memory_info():
    """The free and total memory that cuMemGetInfo reports."""
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    must(driver.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)))
    return free.value, total.value


def fits(nbytes):
    """True if an array of that size can be allocated. It is freed at once."""
    try:
        Array(nbytes)
    except CudaError as error:
        if error.code != OUT_OF_MEMORY:
            raise
        return False
    return True
