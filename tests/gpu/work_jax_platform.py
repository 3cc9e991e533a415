# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors

"""
Usage: work_jax_platform.py [SIDE...]

A jitted step of JAX that makes a matrix of SIDE times SIDE floats each time (default: 1024, which are 4 MiB). Prints the
allocator, which XLA_PYTHON_CLIENT_ALLOCATOR names (default or platform), and the time of a step. XLA synchronizes the
context before it unmaps an array of the allocator `platform`, so its step has a wait in it, whoever serves the memory. A
second line, in which each step waits for its result, has that wait with both allocators.
"""

import os
import sys
import time

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # before JAX reads it

import jax
import jax.numpy as jnp

WARM_UP, RUNS = 10, 7
ELEMENTS = 640 << 20  # of all steps of a run, so that large ones do not take long
STEPS_MIN, STEPS_MAX = 12, 100


def us_a_step(step, a, steps, is_awaited):
    start = time.perf_counter()
    for _ in range(steps):
        b = step(a)
        if is_awaited:
            b.block_until_ready()
    b.block_until_ready()
    return (time.perf_counter() - start) / steps * 1e6


def measure(step, side):
    a = jnp.ones((side, side), jnp.float32)
    for _ in range(WARM_UP):
        b = step(a)
    b.block_until_ready()
    name = os.environ.get("XLA_PYTHON_CLIENT_ALLOCATOR", "default")
    steps = min(max(ELEMENTS // side**2, STEPS_MIN), STEPS_MAX)
    for is_awaited, what in ((False, "a step"), (True, "a step that waits for its result")):
        us = sorted(us_a_step(step, a, steps, is_awaited) for _ in range(RUNS))[RUNS // 2]
        print(f"{name}, {side} x {side}: {us:.1f} us {what}")


def main():
    step = jax.jit(lambda a: (jnp.sin(a) * 2 + 1) @ a.T)
    for side in map(int, sys.argv[1:] or ["1024"]):
        measure(step, side)


if __name__ == "__main__":
    main()
