# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors

"""
Windows of the chain of tests/gpu/work_cupy.py. "none" turns CuPy's own pools off, "async" uses the driver's, and "rmm" a
pool of the driver that RMM makes.
"""

import sys

import cupy
import play
import work_cupy


def use_rmm():
    """RMM's resource over cudaMallocAsync, which makes a pool of its own."""
    import rmm  # pylint: disable=import-outside-toplevel
    from rmm.allocators.cupy import rmm_cupy_allocator  # pylint: disable=import-outside-toplevel

    rmm.mr.set_current_device_resource(rmm.mr.CudaAsyncMemoryResource())
    cupy.cuda.set_allocator(rmm_cupy_allocator)


def main():
    words = sys.argv[1:]
    work_cupy.set_pool(words != ["none"])
    if words == ["async"]:
        cupy.cuda.set_allocator(cupy.cuda.MemoryAsyncPool().malloc)
    elif words == ["rmm"]:
        use_rmm()
    step, last = work_cupy.chain(), {}

    def chain_step(_):
        last["sum"] = step()

    def own_peak():
        """RMM's pool does not tell its peak."""
        if words == ["async"]:
            return play.default_pool_peak()
        return None if words else cupy.get_default_memory_pool().total_bytes()

    def more_results():
        return {"answer": repr(float(last["sum"])), "own_peak": own_peak()}

    for i in range(work_cupy.WARM_UP):
        chain_step(i)
    play.serve(chain_step, cupy.cuda.Device().synchronize, work_cupy.STEPS, more_results)


main()
