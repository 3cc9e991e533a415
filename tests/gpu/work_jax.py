# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors

"""Jitted steps of JAX on arrays of three sizes. Prints the speed, a sum, and the peak of JAX's own pool."""

import json
import sys
import time

import jax
import jax.numpy as jnp

WARM_UP, STEPS, WINDOWS = 12, 300, 3
SIZES = (1024, 1536, 2048)


def main():
    step = jax.jit(lambda a: (jnp.sin(a) * 2 + 1) @ a.T)
    inputs = [jnp.full((n, n), 1 / n) for n in SIZES]
    kept = []

    def run(i):
        kept.append(step(inputs[i % len(inputs)]))
        if len(kept) > 4:
            kept.pop(0)

    for i in range(WARM_UP):
        run(i)
    ms = []
    for _ in range(WINDOWS):
        kept[-1].block_until_ready()
        start = time.perf_counter()
        for i in range(STEPS):
            run(i)
        kept[-1].block_until_ready()
        ms.append((time.perf_counter() - start) / STEPS * 1e3)
    answer = " ".join(f"{float(array.sum()):.6e}" for array in kept[-len(SIZES):])
    stats = jax.local_devices()[0].memory_stats() or {}
    print(json.dumps({"ms": ms, "answer": answer, "own_peak_bytes": stats.get("peak_bytes_in_use")}), flush=True)
    sys.stdin.readline()  # the test may observe this process before it ends


if __name__ == "__main__":
    main()
