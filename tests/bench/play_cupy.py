# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors

"""
Windows of the chain of tests/gpu/work_cupy.py. "none" turns CuPy's own pools off, "async" uses the driver's, "rmm" a
pool of the driver that RMM makes, and "rmm-default" RMM's resource over the driver's default pool.
"""

import sys

import cupy
import play
import work_cupy


def use_rmm(has_own_pool):
    """RMM's resource over cudaMallocFromPoolAsync, with a pool that it makes or with the device's default pool."""
    import rmm  # pylint: disable=import-outside-toplevel
    from cuda.bindings import runtime  # pylint: disable=import-outside-toplevel
    from rmm.allocators.cupy import rmm_cupy_allocator  # pylint: disable=import-outside-toplevel

    if has_own_pool:
        resource = rmm.mr.CudaAsyncMemoryResource()
    else:
        error, pool = runtime.cudaDeviceGetDefaultMemPool(0)
        if error != runtime.cudaError_t.cudaSuccess:
            raise RuntimeError(f"cudaDeviceGetDefaultMemPool: {error}")
        resource = rmm.mr.CudaAsyncViewMemoryResource(pool)
    rmm.mr.set_current_device_resource(resource)
    cupy.cuda.set_allocator(rmm_cupy_allocator)


def main():
    words = sys.argv[1:]
    work_cupy.set_pool(words != ["none"])
    if words == ["async"]:
        cupy.cuda.set_allocator(cupy.cuda.MemoryAsyncPool().malloc)
    elif words in (["rmm"], ["rmm-default"]):
        use_rmm(words == ["rmm"])
    step, last = work_cupy.chain(), {}

    def chain_step(_):
        last["sum"] = step()

    def own_peak():
        if words in (["async"], ["rmm"], ["rmm-default"]):
            array = cupy.empty(1)  # alive while the driver is asked
            return play.peak_of_pool_of(array.data.ptr)
        return None if words else cupy.get_default_memory_pool().total_bytes()

    def more_results():
        return {"answer": repr(float(last["sum"])), "own_peak": own_peak()}

    for i in range(work_cupy.WARM_UP):
        chain_step(i)
    play.serve(chain_step, cupy.cuda.Device().synchronize, work_cupy.STEPS, more_results)


main()
