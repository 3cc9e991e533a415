# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors

"""Windows of a jitted step of JAX, with the allocator that XLA_PYTHON_CLIENT_ALLOCATOR names."""

import jax
import jax.numpy as jnp
import play

STEPS, WARM_UP = 200, 20


def main():
    step = jax.jit(lambda a: (jnp.sin(a) * 2 + 1) @ a.T)
    a, last = jnp.ones((1024, 1024)), {}

    def jax_step(_):
        last["b"] = step(a)

    def wait():
        last["b"].block_until_ready()

    for i in range(WARM_UP):
        jax_step(i)
    play.serve(jax_step, wait, STEPS, lambda: {"answer": f"{float(last['b'][0, 0]):.3f}"})


main()
