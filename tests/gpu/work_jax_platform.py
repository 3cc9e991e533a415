# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors

"""
A jitted step of JAX that makes an array of 4 MiB each time. Prints the allocator, which XLA_PYTHON_CLIENT_ALLOCATOR
names (default or platform), and the time of a step.
"""

import os
import time

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # before JAX reads it

import jax
import jax.numpy as jnp

SIDE, WARM_UP, STEPS = 1024, 10, 100


def main():
    step = jax.jit(lambda a: (jnp.sin(a) * 2 + 1) @ a.T)
    a = jnp.ones((SIDE, SIDE), jnp.float32)
    for _ in range(WARM_UP):
        b = step(a)
    b.block_until_ready()
    start = time.perf_counter()
    for _ in range(STEPS):
        b = step(a)
    b.block_until_ready()
    us = (time.perf_counter() - start) / STEPS * 1e6
    print(f"{os.environ.get('XLA_PYTHON_CLIENT_ALLOCATOR', 'default')}: {us:.0f} us a step")


if __name__ == "__main__":
    main()
