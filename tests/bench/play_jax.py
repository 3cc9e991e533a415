# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors

"""
Windows of a jitted step of JAX, with the allocator that XLA_PYTHON_CLIENT_ALLOCATOR names. With "awaited" each step
waits for its result.
"""

import os
import sys

import jax
import jax.numpy as jnp
import play

STEPS, WARM_UP = 200, 20


def main():
    step = jax.jit(lambda a: (jnp.sin(a) * 2 + 1) @ a.T)
    a, last = jnp.ones((1024, 1024)), {}
    is_awaited = sys.argv[1:] == ["awaited"]

    def wait():
        last["b"].block_until_ready()

    def jax_step(_):
        last["b"] = step(a)
        if is_awaited:
            wait()

    def more_results():
        in_stream_order = os.environ.get("XLA_PYTHON_CLIENT_ALLOCATOR") == "cuda_async"
        return {"answer": f"{float(last['b'][0, 0]):.3f}",
                "own_peak": play.default_pool_peak() if in_stream_order else None}

    for i in range(WARM_UP):
        jax_step(i)
    play.serve(jax_step, wait, STEPS, more_results)


main()
