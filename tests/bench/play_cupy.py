# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors

"""Windows of the chain of tests/gpu/work_cupy.py; "none" turns CuPy's own pools off, "async" uses the driver's."""

import sys

import cupy
import play
import work_cupy


def main():
    words = sys.argv[1:]
    work_cupy.set_pool(words != ["none"])
    if words == ["async"]:
        cupy.cuda.set_allocator(cupy.cuda.MemoryAsyncPool().malloc)
    step, last = work_cupy.chain(), {}

    def chain_step(_):
        last["sum"] = step()

    def more_results():
        own = None if words else cupy.get_default_memory_pool().total_bytes()
        return {"answer": repr(float(last["sum"])), "own_peak": own}

    for i in range(work_cupy.WARM_UP):
        chain_step(i)
    play.serve(chain_step, cupy.cuda.Device().synchronize, work_cupy.STEPS, more_results)


main()
