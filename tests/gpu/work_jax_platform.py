# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors

"""
A jitted step of JAX that makes an array of 4 MiB each time. Prints the allocator, which XLA_PYTHON_CLIENT_ALLOCATOR
names (default or platform), and the time of a step. XLA synchronizes the context before it unmaps an array of the
allocator `platform`, so its step has a wait in it, whoever serves the memory. A second line, in which each step waits
for its result, has that wait with both allocators.
"""

import os
import time

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # before JAX reads it

import jax
import jax.numpy as jnp

SIDE, WARM_UP, STEPS, RUNS = 1024, 10, 100, 7


def us_a_step(step, a, is_awaited):
    start = time.perf_counter()
    for _ in range(STEPS):
        b = step(a)
        if is_awaited:
            b.block_until_ready()
    b.block_until_ready()
    return (time.perf_counter() - start) / STEPS * 1e6


def main():
    step = jax.jit(lambda a: (jnp.sin(a) * 2 + 1) @ a.T)
    a = jnp.ones((SIDE, SIDE), jnp.float32)
    for _ in range(WARM_UP):
        b = step(a)
    b.block_until_ready()
    name = os.environ.get("XLA_PYTHON_CLIENT_ALLOCATOR", "default")
    for is_awaited, what in ((False, "a step"), (True, "a step that waits for its result")):
        us = sorted(us_a_step(step, a, is_awaited) for _ in range(RUNS))[RUNS // 2]
        print(f"{name}: {us:.1f} us {what}")


if __name__ == "__main__":
    main()
